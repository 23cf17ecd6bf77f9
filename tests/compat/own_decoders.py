"""Decoders of a user's own, as a data set's description names them."""

from omniloom import energon


class Reversing(energon.SampleDecoder):
    """Gives texts backwards, so many times."""

    def __init__(self, times=1, **options):
        super().__init__(**options)
        self.times = times

    def decode(self, fname, raw):
        value = super().decode(fname, raw)
        if fname.endswith("txt"):
            for _ in range(self.times):
                value = value[::-1]
        return value


class Counting:
    """Gives the length of each part; no class of Energon's."""

    def __call__(self, sample):
        return {name: value if name.startswith("__") else len(value) for name, value in sample.items()}
