"""``python -m omniloom`` is the ``omniloom`` program."""

from omniloom.tools.main import main

if __name__ == "__main__":  # workers of mpi4py.futures import this module under another name
    main()
