"""From the first page to a classifier of one's own, by what the pages say."""

from __future__ import annotations

from pages import DOCS, commands, run_page


def test_new_user_gets_a_classifier_from_the_pages(tmp_path, monkeypatch, capsys):
    assert "(start.md)" in (DOCS / "index.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)  # with nothing in it but what the page says to put there
    run_page("docs/start.md", capsys.readouterr, by_form={"train"})
    verbs = [command.words[1] for command in commands("docs/start.md")]
    assert {"train", "predict"} <= set(verbs)
    assert (tmp_path / "my-classifier" / "report.md").is_file()
