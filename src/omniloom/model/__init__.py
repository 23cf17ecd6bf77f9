"""Models of the LLaVA architecture, on one device: nothing here knows of ranks, files or data sets.

Reading order: `config`, `documents`, `attention`, `decoder`, `vision`, `projector`, `llava`, `loss`; then `families`.
"""

from importlib.util import find_spec

if find_spec("jaxtyping") is None:
    raise ImportError("omniloom.model needs jaxtyping. Run `pip install omniloom[train]`.")
