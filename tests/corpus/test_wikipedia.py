"""Wikipedia dumps: which pages are read, and what is left of their markup."""

import bz2
import gzip
import lzma
import time
import tracemalloc
from html import escape
from pathlib import Path

import pytest

from elmokit.corpus.documents import read_pages, strip_markup
from elmokit.errors import DataError

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo><namespaces>
    <namespace key="0" case="first-letter" />
    <namespace key="6" case="first-letter">Datei</namespace>
    <namespace key="14" case="first-letter">Kategorie</namespace>
  </namespaces></siteinfo>
"""


def page(text: str, namespace: int = 0, redirect: bool = False) -> str:
    target = '<redirect title="x" />' if redirect else ""
    return (
        f"<page><title>T</title><ns>{namespace}</ns><id>1</id>{target}<revision><id>2</id>"
        f'<text bytes="1" xml:space="preserve">{escape(text)}</text></revision></page>\n'
    )


def dump(*pages: str) -> bytes:
    return (HEAD + "".join(pages) + "</mediawiki>").encode()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)],
)
def test_wikipedia_reads_articles_alone(tmp_path: Path, suffix: str, compress: object) -> None:
    data = dump(
        page("First."),
        page("#REDIRECT [[x]]", redirect=True),
        page("Talk.", namespace=1),
        page("[[Datei:a.jpg|mini|Bild]]Zweite.[[kategorie:Ort]] [[Berlin|Stadt]] &amp; <b>c</b>"),
        page(""),
    )
    path = tmp_path / f"a.XML{suffix}"
    path.write_bytes(compress(data))
    found = [article.paragraphs() for article in read_pages(str(path))]
    assert found == [["First."], ["Zweite. Stadt & c"], []]


def test_wikipedia_memory_is_that_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(dump(*(page(f"{n} word " * 200) for n in range(3000))))
    tracemalloc.start()
    count = sum(1 for _ in read_pages(str(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000
    assert path.stat().st_size > 6e6 > 4 * peak


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.xml", b"<feed></feed>", "root element is <feed>"),
        ("a.xml", b"", "after 0 articles: not valid XML"),
        ("a.xml", dump(page("a"))[:-5], "after 1 articles: not valid XML"),
        ("a.xml", dump(page("a")).replace(b">a<", b">\xff<"), "not valid XML"),
        ("a.xml.bz2", bz2.compress(dump(page("a")))[:-20], "ends too early"),
        ("a.xml.gz", b"no gzip", "cannot read further"),
        ("a.xml.xz", b"no xz", "cannot read further"),
        ("a.xml.zst", b"", "Decompress it first"),
    ],
)
def test_wikipedia_damaged_dumps(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}.*{message}"):
        list(read_pages(str(path)))
    with pytest.raises(DataError, match="no such file"):
        list(read_pages(str(tmp_path / "b.xml")))


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        ("It's [[Norway]]'s [[capital city|capital]].", "It's Norway's capital."),
        ("[[Oslo#History|past]] and [[:Category:Towns|towns]]", "past and towns"),
        ("A {{template|with {{inner|one}}\n|lines}} b", "A b"),
        ("A{{x|}} b{{y|{a} }} c", "A b c"),
        (
            "Before\n{| class=x\n! head\n|-\n| cell {{t|}}\n{|\n| inner\n|}\n|}\nAfter",
            "Before|After",
        ),
        ("{{Infobox\n| a = {|\n| b\n|}\n}}Text", "Text"),
        ("Unclosed {{template in text", "Unclosed template in text"),
        ("Loose }} braces |} here", "Loose braces |} here"),
        (
            "Fact.<ref>Source</ref> More.<ref name=a /> End.<ref name='b'>{{cite|x}}</ref>",
            "Fact. More. End.",
        ),
        ("Old.<REF>a</REF> An <ref>open reference", "Old. An open reference"),
        ("a<!-- b\n\n-- c -->d<!-- open", "ad"),
        ("[[File:a.jpg|thumb|A [[link|label]] and [http://x.org site].]]Text", "Text"),
        ("[[Image:a.jpg|thumb]]Text[[Category:Towns|Oslo]]", "Text"),
        ("[[de:Oslo]]Text [[wikt:word|word]]", "Text word"),
        ("See [http://x.org the site], [https://y.org] or [//z.org z].", "See the site, or z."),
        ("== Heading ==\nText\n=== More ===", "Text"),
        ("E = mc<sup>2</sup> and <math>a < b</math> x", "E = mc2 and x"),
        ("* one\n** two\n# three\n: four\n;five", "one|two|three|four|five"),
        ("A<br/>B <span style='x'>c</span> 5 < 6", "A|B c 5 < 6"),
        ("AT&amp;T 5&nbsp;km &ndash; &lt;b&gt;", "AT&T 5 km – <b>"),
        ("__NOTOC__Text __init__", "Text __init__"),
        ("Oslo ({{IPA|x}}) and ( ; ) is", "Oslo and is"),
        ("<nowiki>[x]</nowiki> <gallery>\nFile:a.jpg|b\n</gallery>", "[x]"),
        ("----\n|-\n! head\n| cell\n...", ""),
    ],
)
def test_wikipedia_markup(markup: str, text: str) -> None:
    assert "|".join(strip_markup(markup)) == text


@pytest.mark.parametrize(
    "piece",
    [
        "{{",
        "}}",
        "\n{|",
        "\n|}",
        "[[",
        "]]",
        "[[a",
        "<ref>",
        "<ref",
        "</ref>",
        "<!--",
        "[http://",
        "(",
    ],
)
def test_wikipedia_hostile_markup_takes_linear_time(piece: str) -> None:
    start = time.process_time()
    strip_markup(piece * 40_000)
    strip_markup((piece + "{{[[<ref>") * 10_000)
    assert time.process_time() - start < 5
