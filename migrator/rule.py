"""The contract that rule files import.

One file in rules/ is one codemod.  Its docstring says why; `rule = Rule(…)` says what; its examples are its
tests and its documentation; its handlers say where:

    @rule.on_name("torch.cuda.*")          every use of these qualified names, imports and aliases resolved
    @rule.on_method("cuda")                `x.cuda`, called or not, where x is no module
    @rule.on_string("cuda")                string literals and f-strings that contain the word
    @rule.on_keyword("pin_memory_device")  call arguments of that name
    @rule.on_import("torch.cuda")          import statements of a module and what is below it
    @rule.on_file("word")                  once per file that contains the word
    @rule.on_remove("word")                once per file with --remove: the way back
    @rule.on_change()                      once per file that fixes of other rules change

A handler gets a match (see migrator.match) and returns a Fix, a Report, several of them, or None.  It never
prints, never mutates a tree and never raises for user input.  The dispatch table and the byte prefilter both
come from these registrations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import libcst as cst

from migrator.api import ParameterKind
from migrator.edits import Edit
from migrator.match import Call, FileMatch, Import, Keyword, Match, Method, Name, Text, call_of
from migrator.outcome import Fix, Outcome, Report
from migrator.records import Applicability, Severity
from migrator.roles import Role

SAFE, UNSAFE, MANUAL = Applicability.SAFE, Applicability.UNSAFE, Applicability.MANUAL
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

__all__ = [
    "ERROR", "INFO", "MANUAL", "SAFE", "UNSAFE", "WARNING", "Call", "Edit", "Example", "FileMatch", "Fix",
    "Import", "Keyword", "Match", "Method", "Name", "Report", "Role", "Rule", "Text", "call_of", "rename_or_report",
]  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One test and one piece of documentation: code before and after, and what is reported.

    after    None: the code stays as it is
    reports  words that must be in the message of a finding left for a person, one entry per finding
    target   the torch_npu version; None: the newest known
    unsafe   run with --unsafe
    files    other files of the repository, path → text
    """

    before: str
    after: str | None = None
    reports: tuple[str, ...] = ()
    target: str | None = None
    unsafe: bool = False
    files: tuple[tuple[str, str], ...] = ()

    @classmethod
    def reported(cls, code: str, *reports: str, target: str | None = None) -> Example:
        """Code that stays as it is and is reported."""
        return cls(code, None, reports, target)

    @classmethod
    def unchanged(cls, code: str) -> Example:
        """Code about which the rule has nothing to say."""
        return cls(code)


def _prefilter_word(pattern: str) -> str:
    """A word that each file with this name contains: the last one, where it is no everyday word (`init`, `start`).

    A class that the repository re-exports under its name (`from .amp import GradScaler`) has only that.
    """
    parts = pattern.removesuffix(".*").split(".")
    last = parts[-1]
    if len(last) > 7 or last != last.lower() or "_" in last:
        return last
    return next((part for part in parts if "cud" in part), last if parts[0] == "torch" else parts[0])


HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


@dataclass(frozen=True)
class Handler:
    """One registration: what it subscribes to, the function to call, and the prefilter's words.

    words  a file without any of them is never read closely; by default a word of each pattern
    """

    kind: str  # name, method, string, keyword, import, file, remove, change
    patterns: tuple[str, ...]
    function: Callable[[Any], Outcome]
    words: tuple[str, ...]


@dataclass
class Rule:
    """What a codemod is; see the module docstring for how it says where it applies.

    id             NPU and three digits; the first one is the family (see CONTRIBUTING)
    title          one line: why
    applicability  of its fixes, where a fix does not say otherwise
    torch_npu      the versions that it writes code for, e.g. ">=2.5.1"
    docs           a link for people who want to read more
    default        False: only when it is selected
    """

    id: str
    name: str
    title: str
    applicability: Applicability
    examples: Sequence[Example]
    tags: tuple[str, ...] = ()
    torch_npu: str = ">=2.1"
    severity: Severity = WARNING
    docs: str = "https://github.com/Ascend/pytorch"
    default: bool = True
    doc: str = ""  # the file's docstring, set by the registry
    handlers: list[Handler] = field(default_factory=list)

    def _register(
        self, kind: str, patterns: tuple[str, ...], words: Sequence[str] | None = None
    ) -> Callable[[HandlerT], HandlerT]:
        found = [_prefilter_word(pattern) for pattern in patterns] if words is None else words

        def register(function: HandlerT) -> HandlerT:
            self.handlers.append(Handler(kind, patterns, function, tuple(found)))
            return function

        return register

    def on_name(self, *names: str, words: Sequence[str] | None = None) -> Callable[[HandlerT], HandlerT]:
        """Uses of qualified names; `a.b.*` means a.b and everything below.  Handler(Name)."""
        return self._register("name", names, words)

    def on_method(self, *attributes: str, words: Sequence[str] | None = None) -> Callable[[HandlerT], HandlerT]:
        """Attributes of these names on anything that is no module.  Handler(Method)."""
        return self._register("method", attributes, words)

    def on_string(self, *words: str) -> Callable[[HandlerT], HandlerT]:
        """String literals and f-strings that contain one of these words (any case).  Handler(Text)."""
        return self._register("string", words)

    def on_keyword(self, *keywords: str, words: Sequence[str] | None = None) -> Callable[[HandlerT], HandlerT]:
        """Keyword arguments of these names in any call.  Handler(Keyword)."""
        return self._register("keyword", keywords, words)

    def on_import(self, *modules: str, words: Sequence[str] | None = None) -> Callable[[HandlerT], HandlerT]:
        """Import statements that name one of these modules or something below.  Handler(Import)."""
        return self._register("import", modules, words)

    def on_file(self, *words: str) -> Callable[[HandlerT], HandlerT]:
        """Once per file that contains one of these words.  Handler(FileMatch)."""
        return self._register("file", (), words)

    def on_remove(self, *words: str) -> Callable[[HandlerT], HandlerT]:
        """With --remove, once per file with one of these words: take out what was put in.  Handler(FileMatch)."""
        return self._register("remove", (), words)

    def on_change(self) -> Callable[[HandlerT], HandlerT]:
        """Once per file that fixes of other rules change, with those fixes.  Handler(FileMatch)."""
        return self._register("change", ())


def rename_or_report(match: Name) -> Fix | Report | None:
    """The answer of the CUDA map: another name where the target has one that takes the same arguments.

    None where the import of the name moves, so that the use needs no edit.
    """
    new, row, target = match.destination, match.row, match.file.target
    remedy = row.remedy if row else None
    if new is None:
        if row is not None and row.since is not None and row.npu and not target.can(row):
            message = f"{match.qualified}: {row.npu} exists from torch_npu {row.since} on, not in {target.torch_npu}"
        else:
            message = f"{match.qualified} has no counterpart in torch_npu {target.torch_npu}"
        severity = INFO if row is not None and row.kind.value in ("advice", "drop") else None
        return Report(message, remedy or "Remove this, or keep it out of the way of the NPU.", severity)
    if (refused := _refused_arguments(match, new)) is not None:
        return Report(f"{new} does not take {refused}", remedy or f"Write the call for {new} by hand.")
    edits = [*match.rename(new), *_rename_keywords(match, new)]
    if not edits:
        return None
    return Fix(edits, f"{match.qualified} → {new}", None if row is None or row.exact_semantics else remedy)


def _keyword_names(match: Name, new: str) -> dict[str, str]:
    """The keywords that the NPU function calls otherwise, and how."""
    signature, row = match.file.target.signature(new), match.row
    if signature is None or row is None:
        return {}
    return {name: other for name, other in row.keywords if not signature.accepts(name) and signature.accepts(other)}


def _rename_keywords(match: Name, new: str) -> Iterator[Edit]:
    renamed = _keyword_names(match, new)
    for arg in _arguments(match) if renamed else ():
        if arg.keyword is not None and arg.keyword.value in renamed:
            yield match.replace(arg.keyword, renamed[arg.keyword.value])


def _arguments(match: Name) -> Sequence[cst.Arg]:
    """What is written of the function's arguments: in its call, or in `partial(function, …)`."""
    if match.call is not None:
        return match.call.node.args
    arg = match.parent()
    call = match.file.tree.parents.get(arg) if isinstance(arg, cst.Arg) else None
    is_partial = isinstance(call, cst.Call) and match.file.names.resolve(call.func) == "functools.partial"
    return call.args[1:] if isinstance(call, cst.Call) and is_partial and call.args[0] is arg else ()


def _refused_arguments(match: Name, new: str) -> str | None:
    """Arguments that the NPU function has no parameter for."""
    signature, arguments, renamed = match.file.target.signature(new), _arguments(match), _keyword_names(match, new)
    if signature is None:
        return None
    keywords = [arg.keyword.value for arg in arguments if arg.keyword is not None]
    refused = [f"{name}=" for name in keywords if not signature.accepts(renamed.get(name, name))]
    if renamed and any(arg.star == "**" for arg in arguments):
        refused.append("all that ** may bring")
    takes_any = any(p.kind is ParameterKind.VAR_POSITIONAL for p in signature.parameters)
    positional = [arg for arg in arguments if arg.keyword is None and not arg.star]
    if not takes_any and len(positional) > len(signature.positional):
        refused.append(f"more than {len(signature.positional)} positional arguments")
    return ", ".join(refused) or None
