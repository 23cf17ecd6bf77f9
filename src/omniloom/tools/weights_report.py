"""What the commands about weights print: a model's tensors, two models' differences, one model's faults."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

from omniloom.conversion.compare import differences, faults
from omniloom.conversion.published import Published
from omniloom.conversion.targets import expressible
from omniloom.tools.progress_bar import progress_bar

_SHOWN = 50


def shown(published: Published, *, as_json: bool) -> str:
    """What model it is and what tensors it has."""
    tensors = published.source.tensors
    parameters = sum(info.size_bytes // info.dtype.itemsize for info in tensors.values())
    reasons = expressible(published.config)
    if as_json:
        return json.dumps(
            {
                "path": str(published.path),
                "form": published.form,
                "config": asdict(published.config),
                "parameters": parameters,
                "size_bytes": published.source.size_bytes,
                "fresh": list(published.fresh),
                "neutral": list(published.neutral),
                "companions": sorted(published.companions),
                "not_expressible": {form: reason for form, reason in reasons.items() if reason},
                "tensors": {
                    name: [str(info.dtype).removeprefix("torch."), *info.shape] for name, info in tensors.items()
                },
            }
        )
    dtypes = Counter(str(info.dtype).removeprefix("torch.") for info in tensors.values())
    lines = [
        f"{published.path}: {published.form}, {type(published.config).__name__}",
        f"{parameters:,} parameters in {len(tensors)} tensors, {published.source.size_bytes / 1e9:.3f} GB, "
        + ", ".join(f"{count} {dtype}" for dtype, count in dtypes.most_common()),
        f"beside them: {', '.join(sorted(published.companions)) or 'no other files'}",
        *(f"cannot be written as {form}: {reason}" for form, reason in reasons.items() if reason),
        "",
        *(f"{name}  {info}" for name, info in tensors.items()),
        *(f"{name}  starts anew" for name in published.fresh),
    ]
    return "\n".join(lines)


def compared(left: Published, right: Published, *, tolerance: float) -> tuple[str, bool]:
    """Where two models differ, and whether they are the same within the tolerance."""
    with progress_bar("Comparing", shown=True) as display:
        found = [
            one
            for one in differences(
                left.source, right.source, tell=lambda done, total, name: display.show(done / total, name)
            )
            if one.kind in {"missing", "extra", "shape"} or one.largest > tolerance or tolerance == 0.0
        ]
    lines = [] if left.config == right.config else _config_lines(left, right)
    lines += [f"{one.name}: {one.kind}: {one.detail}{_largest(one.largest)}" for one in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    total = len(left.source.tensors.keys() | right.source.tensors.keys())
    exact = "to the bit" if tolerance == 0.0 else f"within {tolerance:g}"
    lines.append(f"{total - len(found)} of {total} tensors are the same {exact}")
    return "\n".join(lines), not found


def verified(published: Published) -> tuple[str, bool]:
    """Which tensors cannot be right, and whether all can."""
    with progress_bar("Reading", shown=True) as display:
        found = list(faults(published.source, tell=lambda done, total, name: display.show(done / total, name)))
    lines = [f"{one.name}: {one.detail}" for one in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    total = len(published.source.tensors)
    lines.append(
        f"{published.path}: {published.form}, {total} tensors of the shapes of its config; {len(found)} cannot be right"
    )
    return "\n".join(lines), not found


def _config_lines(left: Published, right: Published) -> list[str]:
    one, two = asdict(left.config), asdict(right.config)
    names = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
    return [f"config: {name}: {one.get(name)!r}, {two.get(name)!r}" for name in names]


def _largest(value: float) -> str:
    return f", by {value:g} at most" if value else ""
