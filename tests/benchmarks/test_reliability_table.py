"""The table of docs/reliability.md is what the stored results say."""

from __future__ import annotations

from benchmarks.reliability import table as script


def test_table_has_every_group_and_the_sums(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "PARTS", tmp_path)
    script.save_part("writers", [script.Group("full disk", 12, 12)])
    script.save_part("readers", [script.Group("HDF5", 1500, 1499, 0.25, 61.2)])
    lines = script.table().splitlines()
    assert lines[0] == "readers, writers"
    found = [line.split() for line in lines]
    assert ["HDF5", "1,500", "1,499", "0.25", "61"] in found
    assert ["full", "disk", "12", "12", "-", "-"] in found
    assert found[-1] == ["all", "1,512", "1,511"]


def test_stored_table_is_made_of_the_stored_results():
    stored = script.RESULTS / f"{script.NAME}.txt"
    if any(script.PARTS.glob("*.json")):
        assert stored.read_text("utf-8") == script.table(), "run benchmarks.reliability.table"
    else:
        assert not stored.exists()
