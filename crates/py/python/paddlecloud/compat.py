"""`import paddlecloud.compat` where the wheel's `.pth` file is not read.

That is the case with `PYTHONPATH`, `pip install --target` and `python -S`. Elsewhere it has no effect. It
also warns if another package's `recordio` is installed.
"""

from paddlecloud import _finder
from paddlecloud._foreign import warn_about_foreign_recordio

_finder.install()
warn_about_foreign_recordio()
