"""The migration as a LibCST codemod command, for people who run all their codemods with `libcst.tool`:

    python -m libcst.tool codemod --no-format -x migrator.codemod.Migrate --torch-npu 2.7.1 PATH…

libcst.tool finds the files, starts the processes and writes (and, without --no-format, formats all of the files that
change).  What is left for a person comes as a warning.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from migrator import config, discover, gitrepo, registry, run
from migrator.job import Job
from migrator.records import Status
from migrator.report import FORMATS
from migrator.target import detect

Options = tuple[tuple[str, Any], ...]


class Migrate(CodemodCommand):
    """One file at a time, with the facts of its whole repository.

    torch_npu, select, ignore and unsafe are npu-migrate's options of these names; pyproject.toml is read too.
    Raises what npu-migrate raises for options that make no sense.
    """

    DESCRIPTION = "Rewrite CUDA PyTorch code for Ascend NPUs (npu-migrate)."

    def __init__(
        self,
        context: CodemodContext,
        torch_npu: str | None = None,
        select: Iterable[str] = (),
        ignore: Iterable[str] = (),
        unsafe: bool = False,
    ) -> None:
        super().__init__(context)
        given = {"torch_npu": torch_npu, "select": _words(select), "ignore": _words(ignore), "unsafe": unsafe}
        self._options: Options = tuple(given.items())

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """npu-migrate's options that matter here; see `npu-migrate --help`."""
        arg_parser.add_argument("--torch-npu", metavar="VERSION", help="write code for this torch_npu")
        arg_parser.add_argument("--select", action="append", default=[], metavar="RULE", help="run only these rules")
        arg_parser.add_argument("--ignore", action="append", default=[], metavar="RULE", help="leave rules out")
        arg_parser.add_argument("--unsafe", action="store_true", help="also make the fixes that need a review")

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """The migrated module; SkipFile says why a file could not be migrated."""
        path = Path(self.context.filename or "").resolve()
        reading, items = _repository(_root(path), self._options)
        if path not in items:
            return tree
        item = replace(items[path], raw=tree.bytes)
        [(_, result)] = run.migrate_items([item], reading.project, jobs=1)
        if result.status in (Status.FAILED, Status.SKIPPED):
            raise SkipFile(result.error or "not migrated")
        for found in result.diagnostics:
            if not found.fixed:
                remedy = f" ({found.remedy})" if found.remedy else ""
                self.warn(f"line {found.line}: {found.rule} {found.message}{remedy}")
        return tree if result.after is None else cst.parse_module(result.after)


def _words(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _root(path: Path) -> Path:
    """The repository of a file, or the folder that the command runs in, or the file's own."""
    return gitrepo.top_of(path) or (Path.cwd() if path.is_relative_to(Path.cwd()) else path.parent)


@cache
def _repository(root: Path, options: Options) -> tuple[run.Reading, dict[Path, run.Item]]:
    """What was read of a repository, and its candidates by path; once for each process."""
    chosen = config.load(root, dict(options), FORMATS)
    found = discover.discover([root], chosen.exclude, chosen.root)
    target = detect(root, cli=dict(options)["torch_npu"], config=chosen.torch_npu, soc=chosen.soc)
    reading = Job(chosen, found, registry.load(chosen.rules_dir), target).read()
    return reading, {found.files[item.index].path: item for item in reading.items}
