from autotune.report.columns import align


def test_columns_line_up_without_trailing_blanks() -> None:
    assert align([("a", "bb", "c"), ("aaa", "b", "")]) == ("a    bb  c", "aaa  b")


def test_numbers_line_up_at_the_right() -> None:
    assert align([("a", "1"), ("b", "100")], right=(1,)) == ("a    1", "b  100")


def test_rows_of_different_length_are_allowed() -> None:
    assert align([("a",), ("bb", "c")]) == ("a", "bb  c")


def test_a_line_break_in_a_cell_does_not_break_the_table() -> None:
    assert align([("a\nb", "c")]) == ("a b  c",)


def test_no_rows_are_no_lines() -> None:
    assert align([]) == ()
