"""`megatron.energon`: the names of `omniloom.energon`, which stands in the place of this module."""

import sys

import omniloom.energon

sys.modules[__name__] = omniloom.energon
omniloom.energon.install()
