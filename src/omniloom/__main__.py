"""``python -m omniloom`` is the ``omniloom`` program."""

from omniloom.tools.main import main

main()
