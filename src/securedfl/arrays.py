"""One array of a model, whether numpy or torch has it.

torch is never imported here: tensors are recognised by what they can do.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from securedfl.errors import InvalidInputError

Array = npt.NDArray[Any]
FLOATS = ("float16", "bfloat16", "float32", "float64")


def as_array(value: Any, name: str) -> Any:
    """Return what stands under a name as a numpy array or a tensor of real numbers; anything else is an error."""
    if is_tensor(value):
        return value.detach()
    if isinstance(value, Mapping):
        raise InvalidInputError(f"parameter {name!r} is a dict itself; give nested parameters flat names like 'a.b'")
    if hasattr(value, "state_dict"):
        raise InvalidInputError("pass model.state_dict(), not the model itself")
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidInputError(f"parameter {name!r} is not an array: its rows differ in length") from None
    if array.dtype.kind not in "fiub":
        raise InvalidInputError(f"parameter {name!r} has dtype {array.dtype}; only real numbers can be averaged")
    return array


def is_tensor(value: Any) -> bool:
    """Return whether torch made it."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def dtype_name(name: str, value: Any) -> str:
    """Return the dtype as numpy and torch both call it; one that cannot be averaged is an error."""
    if isinstance(value, np.ndarray):
        # byte order is how numbers are stored, not what they are
        kind: str = value.dtype.newbyteorder("=").name
    else:
        kind = str(value.dtype).removeprefix("torch.")
    if kind.startswith(("complex", "float", "bfloat")) and kind not in FLOATS:
        raise InvalidInputError(
            f"parameter {name!r} has dtype {kind}; only real numbers of {', '.join(FLOATS)} or integers can be averaged"
        )
    return kind


def gathered(value: Any) -> Any:
    """Return an array or tensor; one that is spread over processes (a DTensor) as a whole, in all of them together."""
    return value.full_tensor() if is_tensor(value) and hasattr(value, "full_tensor") else value


def spread(value: Any, like: Any) -> Any:
    """Return a whole tensor that all processes hold, spread over them as another one is, if it is."""
    if not (is_tensor(like) and hasattr(like, "full_tensor")) or hasattr(value, "full_tensor"):
        return value
    distribute = sys.modules["torch.distributed.tensor"].distribute_tensor
    return distribute(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def to_numpy(value: Any) -> Array:
    """Return an array or tensor as numpy has it; bfloat16, which numpy has not, as float32."""
    if is_tensor(value):
        cpu = gathered(value.detach()).cpu()
        return np.asarray((cpu.float() if str(cpu.dtype) == "torch.bfloat16" else cpu).numpy())
    return np.asarray(value)


def room_for(values: Sequence[Any], size: int, dtype: str) -> Array:
    """Return an empty vector for the numbers of arrays and tensors.

    It is in pinned memory if a tensor is on CUDA, because a GPU fills that by itself.
    """
    if any(_kind(value) == "cuda" for value in values):
        torch = sys.modules["torch"]
        return np.asarray(torch.empty(size, dtype=getattr(torch, dtype), pin_memory=True).numpy())
    return np.empty(size, dtype=dtype)


def put(value: Any, target: Array) -> None:
    """Copy numbers into a part of a vector, rounded once; from a GPU in one step, cast before they travel."""
    # a double, which not every device has, is made here
    if is_at_hand(value) or target.dtype == np.float64:
        target[:] = to_numpy(value).reshape(-1)
    else:
        sys.modules["torch"].from_numpy(target).copy_(gathered(value.detach()).reshape(-1))


def made_like(array: Array, template: Any) -> Any:
    """Return a copy of the numbers in the kind, dtype and device of a template, rounded once."""
    if is_tensor(template):
        # loaded, because a tensor exists
        torch = sys.modules["torch"]
        copy = torch.empty(array.shape, dtype=getattr(torch, array.dtype.name), pin_memory=_kind(template) == "cuda")
        copy.numpy()[...] = array
        return spread(copy.to(dtype=template.dtype, device=template.device), template)
    return np.asarray(array).astype(template.dtype)


def is_at_hand(value: Any) -> bool:
    """Return whether an array or tensor is in the memory of this machine's processor."""
    return _kind(value) in ("", "cpu")


def _kind(value: Any) -> str:
    """Return which kind of device a tensor is on; nothing for other arrays."""
    return str(value.device.type) if is_tensor(value) else ""


def place(value: Any) -> Hashable | None:
    """Return where and how an array lies in memory, None if it is empty or no array."""
    if is_tensor(value):
        value = value.to_local() if hasattr(value, "to_local") else value
        address = value.data_ptr() if value.numel() else 0
        return (str(value.device), address, tuple(value.shape), value.stride(), str(value.dtype)) if address else None
    if isinstance(value, np.ndarray) and value.size:
        return (value.ctypes.data, value.shape, value.strides, value.dtype.str)
    return None


def holds_floats(value: Any) -> bool:
    """Return whether an array has a floating-point dtype; plain lists count, too."""
    return "float" in str(getattr(value, "dtype", "float"))
