"""The HTML page: well formed, self-contained, safe with hostile input, and every finding at its line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from types import SimpleNamespace

from migrator.records import FileResult, Status
from migrator.report import render

VOID = {"meta", "input", "br", "link", "img"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str, **attributes: str) -> list[Element]:
        mine = [self] if self.tag == tag and attributes.items() <= self.attributes.items() else []
        return mine + [found for child in self.children for found in child.all(tag, **attributes)]

    def words(self) -> str:
        return " ".join([self.text, *(child.words() for child in self.children)]).strip()


class Page(HTMLParser):
    """Parses strictly: an end tag must close the element that is open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("page", {})
        self.open = [self.root]
        self.feed(text)
        self.close()
        assert [element.tag for element in self.open] == ["page"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs)
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def page_of(results, meta) -> Element:
    return Page(render("html", results, meta)).root


def cls(element: Element) -> list[str]:
    return element.attributes.get("class", "").split()


def test_figures(results, meta) -> None:
    (cards,) = page_of(results, meta).all("dl")
    figures = {card.all("dt")[0].text: card.all("dd")[0].text for card in cards.children}
    assert figures == {
        "files": "4",
        "changed": "1",
        "fixed": "3",
        "left to do": "3",
        "skipped": "1",
        "failed": "1",
    }


def test_no_part_comes_from_outside(results, meta) -> None:
    page = page_of(results, meta)
    assert not [e for tag in ("link", "img", "iframe", "object") for e in page.all(tag)]
    assert not [e for e in page.all("script") if "src" in e.attributes]
    (style,) = page.all("style")
    assert "url(" not in style.text and "@import" not in style.text
    (policy,) = [m for m in page.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_ids_are_unique_and_links_lead_somewhere(results, meta, finding) -> None:
    awkward = FileResult("a b/ü<%>.py", Status.UNCHANGED, (finding("NPU130", 1, 1, "m"),), b"x\n")
    page = page_of([*results, awkward], meta)
    ids = Counter(
        e.attributes["id"] for tag in ("tr", "details", "section") for e in page.all(tag) if "id" in e.attributes
    )
    assert max(ids.values()) == 1
    local = [href for a in page.all("a") if (href := a.attributes["href"]).startswith("#")]
    assert local and {href[1:] for href in local} <= set(ids)
    assert not any(" " in anchor for anchor in ids)


def test_each_finding_is_at_its_line(results, meta) -> None:
    (train,) = page_of(results, meta).all("details", id="src/train.py")
    rows = train.all("tr")
    at = {row.attributes.get("id"): index for index, row in enumerate(rows)}
    for line, rule in ((3, "NPU130"), (9, "NPU201")):
        notes = rows[at[f"src/train.py:{line}"] + 1]
        assert cls(notes) == ["notes"] and rule in notes.words()
    for line, rule in ((7, "NPU501"), (8, "NPU101"), (12, "NPU101")):
        row = rows[at[f"src/train.py:{line}"]]
        assert cls(row) == ["del"] and [chip.text for chip in row.all("span")] == [rule]


def test_diff_has_both_sides(results, meta) -> None:
    (train,) = page_of(results, meta).all("details", id="src/train.py")
    sides = {
        kind: [r.all("code")[0].text.strip() for r in train.all("tr") if kind in cls(r)] for kind in ("add", "del")
    }
    assert sides["add"][0] == "import torch_npu" and 'net.to("npu")' in sides["add"]
    assert len(sides["add"]) == 4 and len(sides["del"]) == 3


def test_far_lines_are_left_out(meta, finding) -> None:
    before = b"".join(b"line%d\n" % n for n in range(1, 101))
    result = FileResult("a.py", Status.UNCHANGED, (finding("NPU130", 50, 1, "m"),), before)
    (file,) = page_of([result], meta).all("details", id="a.py")
    shown = [code.text for code in file.all("code")]
    assert shown == [f"line{n}" for n in range(47, 54)]
    assert [row.words() for row in file.all("tr") if "gap" in cls(row)] == ["⋯ 46 lines", "⋯ 47 lines"]


def test_findings_without_a_line_to_stand_on_are_kept(meta, finding) -> None:
    lost = (finding("NPU130", 7, 1, "no line"),)
    for before in (None, b"", b"x\n"):
        (file,) = page_of([FileResult("a.py", Status.FAILED, lost, before, error="why")], meta).all(
            "details", id="a.py"
        )
        assert "no line" in file.words() and "failed: why" in file.words()


def test_clean_files_are_counted_not_listed(results, meta) -> None:
    page = page_of(results, meta)
    assert not page.all("details", id="src/data.py")
    assert "1 more looked at" in page.words()


def test_hostile_input_stays_text(meta, finding) -> None:
    evil = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    code = f"# {evil}\n".encode()
    rule = SimpleNamespace(id="NPU130", name=evil, title=evil, doc=evil + evil, docs="javascript:alert(1)", tags=())
    found = finding("NPU130", 1, 1, f"{evil} `{evil}`", name=evil, remedy=evil)
    fixed = finding("NPU101", 1, 1, evil)
    result = FileResult(evil, Status.CHANGED, (found, fixed), code, code + code, error=evil)
    target = replace(meta.target, reason=evil, soc=evil)
    page = page_of([result], replace(meta, rules=(rule,), target=target, root=evil, tool_version=evil))
    assert len(page.all("script")) == 1 and not page.all("img")
    assert not [a for a in page.all("a") if a.attributes["href"].startswith("javascript:")]
    assert "alert" not in page.all("script")[0].text


def test_backticks_are_set_as_code(meta, finding) -> None:
    found = finding("NPU130", 1, 1, 'write `x < "y"` there')
    (file,) = page_of([FileResult("a.py", Status.UNCHANGED, (found,), b"x\n")], meta).all("details", id="a.py")
    (note,) = [div for div in file.all("div") if "note" in cls(div)]
    assert [code.text for code in note.all("code")] == ['x < "y"']


def test_encodings_and_long_lines(meta, finding) -> None:
    before = "# -*- coding: gbk -*-\n训练\n".encode("gbk") + b"x" * 5000 + b"\n"
    result = FileResult("a.py", Status.UNCHANGED, (finding("NPU130", 2, 1, "m"),), before)
    (file,) = page_of([result], meta).all("details", id="a.py")
    lines = [code.text for code in file.all("code")]
    assert lines[1] == "训练" and len(lines[2]) == 1001


def test_dry_run_says_that_nothing_was_written(results, meta) -> None:
    assert "nothing was written" in page_of(results, replace(meta, dry_run=True)).words()
    assert "nothing was written" not in page_of(results, meta).words()


def test_rule_documentation_and_link(results, meta) -> None:
    page = page_of(results, meta)
    assert "Why and *how*." in page.words()
    assert page.all("a", href="https://example.org/fused-adamw")
