"""The comparison of two commits."""

from benchmarks.speed import old_and_new


def test_sides_take_turns_and_ratios_are_of_the_same_round():
    asked = []

    class Side:
        def __init__(self, name, times):
            self.name, self.times = name, times

        def measure(self, number):
            asked.append((number, self.name))
            return self.times[number], 2 * self.times[number]

    # A machine that becomes slower harms both; the new one takes three quarters of the time.
    old, new = Side("old", [4.0, 8.0, 16.0]), Side("new", [3.0, 6.0, 12.0])
    line = old_and_new.line("case", *old_and_new.compare([old, new], 3))
    assert [name for _, name in asked] == ["new", "old", "old", "new", "new", "old"]
    assert line.split() == ["case", "8.0", "6.0", "0.750", "0.750", "-", "0.750", "0.750"]


def test_a_folder_is_taken_as_it_is(tmp_path):
    assert old_and_new.checkout(str(tmp_path), tmp_path / "copy") == tmp_path
    assert not (tmp_path / "copy").exists()
