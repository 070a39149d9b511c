"""The example wide_and_deep: how little a program changes for parameter servers."""

import difflib
import os
import unittest

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "wide_and_deep")


def lines_of(name):
    """The lines below the docstring; a loop that replaces two moves its body to the left."""
    with open(os.path.join(PACKAGE, name)) as file:
        return [line.strip() for line in file][1:]


class WideAndDeepTest(unittest.TestCase):
    def test_the_distributed_program_differs_in_five_lines(self):
        difference = list(difflib.ndiff(lines_of("plain.py"), lines_of("train.py")))
        added = [line for line in difference if line.startswith("+ ")]
        self.assertEqual(len(added), 5, "\n".join(difference))


if __name__ == "__main__":
    unittest.main()
