"""The torch_npu version (and chip) that code is migrated for, and how it is found out.

`detect` asks, in this order: the command line, the configuration, what the repository itself pins, the installed
torch_npu, and at last takes the newest wheel it knows.  Nothing is imported or executed to find out.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from migrator import api

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

MAX_DEPTH = 3
"""Folders below the root of the repository in which pins are looked for."""

SKIPPED = frozenset({"node_modules", "site-packages", "venv", "env", "build", "dist", "__pycache__"})
"""Folders that do not belong to the repository's own source; so do those that start with a dot."""

PACKAGES = {"torch-npu": "torch-npu", "torch_npu": "torch-npu", "torch": "torch", "pytorch": "torch"}
"""Spellings of a distribution → its normal name; conda calls torch pytorch."""

_PACKAGE = r"(?P<name>torch[-_]npu|torch|pytorch)"
_REQUIREMENT = re.compile(rf"{_PACKAGE}\s*(\[[^\]]*\])?\s*([(=<>!~;@]|$)", re.IGNORECASE)
_IN_COMMAND = re.compile(rf"(?<![\w./-]){_PACKAGE}(?P<spec>\s*(?:==|~=|<=?|>=?)[^\s'\"&|;\\]+)", re.IGNORECASE)
_CONDA = re.compile(rf"^\s*-\s*['\"]?(?:[\w-]+::)?{_PACKAGE}\s*(?P<spec>[=<>!~][^'\"#]*)?['\"]?\s*(#|$)", re.IGNORECASE)
_WHEEL = re.compile(
    r"(?<![\w-])(?P<name>torch_npu|torch)-(?P<version>\d[\w.]*)(?:(?:%2B|\+)[\w.]+)?-cp\d", re.IGNORECASE
)
_VARIABLE = re.compile(r"[${}]")


class TargetError(ValueError):
    """The target cannot be determined: a version text makes no sense."""


@dataclass(frozen=True)
class Target:
    """One torch_npu wheel to migrate for; rules ask it before they write a name."""

    torch_npu: str
    """Known wheel, e.g. "2.7.1"."""
    soc: str | None
    """Chip name such as "Ascend910B1"; None: unknown."""
    reason: str
    """Where the version comes from, e.g. "requirements.txt line 3 pins torch-npu==2.6.0"."""

    device: ClassVar[str] = "npu"
    """The device string."""
    module: ClassVar[str] = "torch.npu"
    """The module that stands where torch.cuda stood."""
    backend: ClassVar[str] = "hccl"
    """The torch.distributed backend."""

    def has(self, name: str) -> bool:
        """Whether this torch_npu name exists in the target version."""
        return api.exists(name, self.torch_npu)

    def at_least(self, version: str) -> bool:
        """Whether the target is this torch_npu version or a newer one."""
        return api.at_least(self.torch_npu, version)

    def mapping(self, name: str) -> api.Mapping | None:
        """What exactly this CUDA name becomes; None: no row."""
        return api.mapping(name)

    def mapping_for(self, name: str) -> api.Mapping | None:
        """Like ``mapping``, but falls back to the nearest known parent."""
        return api.mapping_for(name)

    def can(self, row: api.Mapping) -> bool:
        """Whether the replacement of this row can be written for the target version."""
        return row.available(self.torch_npu)

    def signature(self, name: str) -> api.Signature | None:
        """Signature of a torch_npu callable in the target version."""
        return api.signature(name, self.torch_npu)


@dataclass(frozen=True)
class Pin:
    """A requirement that keeps torch-npu or torch from being newer than something."""

    package: str
    specifier: str
    """PEP 440 specifiers such as "==2.6.0" or ">=2.1,<2.7"."""
    file: Path
    """Relative to the root of the repository."""
    line: int

    def __str__(self) -> str:
        verb = "pins" if self.specifier.startswith("==") else "asks for"
        return f"{self.file.as_posix()} line {self.line} {verb} {self.package}{self.specifier}"

    def resolve(self) -> api.Resolved:
        """The newest known wheel that the pin allows, else the nearest one; raises TargetError."""
        try:
            specifiers = SpecifierSet(self.specifier)
        except InvalidSpecifier:
            raise TargetError(f"{self}, which is no version; correct it or pass --torch-npu") from None
        exact = [s.version for s in specifiers if s.operator in ("==", "===") and not s.version.endswith(".*")]
        if not exact:
            for version in reversed(api.versions()):
                if any(specifiers.contains(text, prereleases=True) for text in (version, _base(version))):
                    return api.Resolved(self.specifier, version, True, f"the newest known wheel that fits is {version}")
            exact = [re.split(r"\.\*$", next(iter(specifiers)).version)[0]]
        try:
            return api.resolve(exact[0])
        except ValueError as error:
            raise TargetError(f"{self}: {error}; correct it or pass --torch-npu") from None


def _base(version: str) -> str:
    """The release without its post number: 2.1.0.post8 → 2.1.0."""
    return version.partition(".post")[0]


def detect(root: Path, *, cli: str | None, config: str | None, soc: str | None) -> Target:
    """The target for code below ``root`` (a folder or a file).

    ``cli`` and ``config`` are the versions that the command line and the configuration ask for, if they do. A
    version without a known wheel is answered by the nearest one; ``Target.reason`` says so. Raises TargetError for
    a version text that cannot be read.
    """
    for given, origin in ((cli, "--torch-npu {}"), (config, "the configuration asks for torch_npu {}")):
        if given is not None:
            return _given(given, origin.format(given), soc)
    folder, top, depth = _places(root)
    pins = sorted(
        _pins(top, depth),
        key=lambda pin: (pin.package != "torch-npu", _steps(folder, top / pin.file.parent), str(pin.file), pin.line),
    )
    if pins:
        return _pinned(pins, soc)
    installed = _installed()
    if installed is not None:
        return _given(installed, f"torch_npu {installed} is installed", soc)
    return Target(api.versions()[-1], soc, "nothing pins torch_npu: the newest known wheel is assumed")


def _given(version: str, origin: str, soc: str | None) -> Target:
    try:
        resolved = api.resolve(version)
    except ValueError as error:
        raise TargetError(f"{origin}: {error}") from None
    return Target(resolved.version, soc, _reason(origin, resolved))


def _reason(origin: str, resolved: api.Resolved) -> str:
    return origin if resolved.exact else f"{origin}; {resolved.reason}"


def _installed() -> str | None:
    try:
        return metadata.version("torch-npu")
    except metadata.PackageNotFoundError:
        return None


def _pinned(pins: list[Pin], soc: str | None) -> Target:
    """The target that the first (nearest) pin asks for; the others may only disagree."""
    first = pins[0]
    resolved = first.resolve()
    reason = _reason(str(first), resolved)
    if first.package == "torch":
        reason += f"; torch_npu {resolved.version} goes with it"
    for other in pins[1:]:
        if other.package == first.package and other.resolve().version != resolved.version:
            return Target(resolved.version, soc, f"{reason} (but {other}; the nearest file wins)")
    return Target(resolved.version, soc, reason)


def _places(root: Path) -> tuple[Path, Path, int]:
    """The folder of ``root``, the root of its repository, and how deep to look for pins there.

    Outside a repository the folder itself counts; beside a single file, other folders are somebody else's.
    """
    path = root.resolve()
    folder = path if path.is_dir() else path.parent
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists() or (candidate / ".hg").exists():
            return folder, candidate, MAX_DEPTH
    return folder, folder, MAX_DEPTH if path.is_dir() else 0


def _steps(start: Path, end: Path) -> int:
    """Folders to go up and down from one to the other."""
    shared = len(Path(os.path.commonpath([start, end])).parts)
    return len(start.parts) + len(end.parts) - 2 * shared


Reader = Callable[[str], Iterable["Found"]]


def lacking_torch_npu(root: Path, importing: Iterable[Path]) -> list[Path]:
    """The requirement files for code in `importing` (absolute) that name torch; none where one names torch-npu."""
    _, top, depth = _places(root)
    folders = {folder for file in importing for folder in file.parents}
    lacking = []
    for path, reader in _requirement_files(top, depth):
        folder = path.parent.parent if "requirements" in path.parent.name.lower() else path.parent
        if folder not in folders or reader is _from_dockerfile:
            continue
        # In setup.py any string counts: a bare "torch" may be anything.
        found = [(name, spec) for name, spec, _ in reader(_text(path)) if spec or reader is not _from_setup_py]
        names = {PACKAGES[name.lower()] for name, _ in found}
        if "torch-npu" in names:
            return []
        if names:
            lacking.append(path)
    return lacking


def _pins(top: Path, depth: int) -> Iterator[Pin]:
    for path, reader in _requirement_files(top, depth):
        yield from _pins_of(path, path.relative_to(top), reader)


def _requirement_files(top: Path, depth: int) -> Iterator[tuple[Path, Reader]]:
    for where, folders, files in os.walk(top):
        inside = len(Path(where).relative_to(top).parts) < depth
        folders[:] = sorted(f for f in folders if inside and f not in SKIPPED and not f.startswith("."))
        for name in sorted(files):
            path = Path(where, name)
            reader = _reader(name, path.parent.name)
            if reader is not None and path.is_file():
                yield path, reader


Found = tuple[str, str, int]
"""Package as it is spelled, specifiers, 1-based line."""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""


def _pins_of(path: Path, shown: Path, reader: Reader) -> Iterator[Pin]:
    for name, specifier, line in reader(_text(path)):
        specifier = specifier.replace(" ", "")
        bounded = re.search(r"==|~=|<", specifier)
        if bounded and not _VARIABLE.search(specifier):
            yield Pin(PACKAGES[name.lower()], specifier, shown, line)


def _reader(name: str, folder: str) -> Reader | None:
    lower = name.lower()
    if lower.endswith((".txt", ".in")) and ("requirements" in (lower + folder.lower()) or "constraints" in lower):
        return _from_requirements
    if lower == "pyproject.toml":
        return _from_pyproject
    if lower == "setup.cfg":
        return _from_setup_cfg
    if lower == "setup.py":
        return _from_setup_py
    if lower.endswith((".yml", ".yaml")) and lower.startswith(("environment", "conda", "env")):
        return _from_conda
    if "dockerfile" in lower:
        return _from_dockerfile
    return None


def _from_requirements(text: str) -> Iterator[Found]:
    for number, line in enumerate(text.splitlines(), 1):
        yield from _requirement(line.partition(" #")[0].rstrip("\\ \t"), number)


def _requirement(text: str, line: int) -> Iterator[Found]:
    """The pin in one PEP 508 requirement, if it is about torch and applies to Linux."""
    text = text.strip()
    wheel, match = _WHEEL.search(text), _REQUIREMENT.match(text)
    if wheel and not text.startswith("#"):
        yield wheel["name"], f"=={wheel['version']}", line
        return
    if not match:
        return
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        yield match["name"], text[match.end("name") :].partition(";")[0].strip(), line
        return
    machines = (
        {"platform_machine": m, "sys_platform": "linux", "platform_system": "Linux"} for m in ("aarch64", "x86_64")
    )
    marker = requirement.marker
    if marker is None or "extra" in str(marker) or any(marker.evaluate(m) for m in machines):
        yield requirement.name, str(requirement.specifier), line


def _from_pyproject(text: str) -> Iterator[Found]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    project = _table(document, "project")
    listed = [project.get("dependencies"), *_table(project, "optional-dependencies").values()]
    listed += _table(document, "dependency-groups").values()
    for requirements in listed:
        for requirement in requirements if isinstance(requirements, list) else ():
            if isinstance(requirement, str):
                yield from _requirement(requirement, _line(text, requirement))
    poetry = _table(_table(document, "tool"), "poetry")
    groups = [poetry, *_table(poetry, "group").values()]
    for dependencies in (_table(group, "dependencies") for group in groups):
        for name, value in dependencies.items():
            version = value.get("version") if isinstance(value, dict) else value
            if name.lower() in PACKAGES and isinstance(version, str):
                yield name, _poetry(version), _line(text, version, after=name)


def _table(document: Any, name: str) -> dict[str, Any]:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}


def _poetry(version: str) -> str:
    """Poetry's own constraints as PEP 440: "2.6.0" is exact, "~2.6" stays in 2.6, "^2.6" has no bound that matters."""
    version = version.strip()
    if version.startswith("~") and not version.startswith("~="):
        return "==" + ".".join(version[1:].strip().split(".")[:2]) + ".*"
    if version.startswith("^"):
        return ">=" + version[1:]
    return "==" + version if version[:1].isdigit() else version


def _line(text: str, fragment: str, after: str = "") -> int:
    """1-based line of the first place where ``fragment`` stands (behind ``after``)."""
    for number, line in enumerate(text.splitlines(), 1):
        if fragment in line and after in line:
            return number
    return 1


def _from_setup_cfg(text: str) -> Iterator[Found]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    values = [parser.get("options", "install_requires", fallback="")]
    if parser.has_section("options.extras_require"):
        values += [value for _, value in parser.items("options.extras_require")]
    for value in values:
        for requirement in value.splitlines():
            yield from _requirement(requirement, _line(text, requirement.strip()))


def _from_setup_py(text: str) -> Iterator[Found]:
    """Pins in any string of the file: what is passed to setup() is often put together elsewhere."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for offset, line in enumerate(node.value.splitlines()):
                yield from _requirement(line, node.lineno + offset)


def _from_conda(text: str) -> Iterator[Found]:
    for number, line in enumerate(text.splitlines(), 1):
        match = _CONDA.match(line)
        if match:
            specifier = (match["spec"] or "").strip()
            single = re.fullmatch(r"=\s*([^=\s]+)(=.*)?", specifier)
            yield match["name"], f"=={single[1]}" if single else specifier, number


def _from_dockerfile(text: str) -> Iterator[Found]:
    """Pins in the words of commands; a comment is none."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for match in _IN_COMMAND.finditer(line):
            yield match["name"], match["spec"].strip(), number
        for match in _WHEEL.finditer(line):
            yield match["name"], f"=={match['version']}", number
