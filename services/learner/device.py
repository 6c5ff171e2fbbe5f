"""The device of updates: chosen and tested once at the learner's start.

A build of torch holds kernels for some generations of GPUs. On other GPUs it fails at the first
kernel, in the middle of the first job.
"""

import re
from collections.abc import Iterable

import torch

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")

Capability = tuple[int, int]
"""Generation of a GPU, major and minor."""


class DeviceError(ValueError):
    """The device is unusable; the message gives advice."""


def training_device(name: str) -> torch.device:
    """Return the device of a setting: `cpu`, `cuda`, or `auto` for a GPU if there is one.

    Raises:
        DeviceError: There is no GPU, or this build of torch has no kernels for it.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(
            f"NITRO_DEVICE is {name}, but torch {torch.__version__} finds no GPU; check the driver "
            "and that the container was given one, or set NITRO_DEVICE=cpu"
        )
    if torch.version.cuda is not None:  # ROCm names its GPUs differently
        require_kernels(
            torch.cuda.get_device_name(),
            torch.cuda.get_device_capability(),
            torch.cuda.get_arch_list(),
        )
    return torch.device("cuda")


def require_devices(device: torch.device, num_ranks: int) -> None:
    """Raise `DeviceError` unless each rank has its own GPU, or none needs one."""
    if device.type != "cuda":
        return
    found = torch.cuda.device_count()
    if num_ranks > found:
        raise DeviceError(
            f"NITRO_LEARNER_RANKS is {num_ranks}, but torch finds {found} GPU(s), and each rank "
            "needs one; lower it, or give the container more"
        )


def require_kernels(gpu: str, capability: Capability, architectures: Iterable[str]) -> None:
    """Raise `DeviceError` unless a build of torch can compute on a GPU.

    The build holds code for architectures such as `sm_86` or `compute_90`.
    """
    held = tuple(architectures)
    if any(_runs_on(capability, architecture) for architecture in held):
        return
    major, minor = capability
    raise DeviceError(
        f"torch {torch.__version__} has no kernels for {gpu} (sm_{major}{minor}), only "
        f"{', '.join(held) or 'none'}; build the image with another TORCH_BUILD (cu126 has sm_70), "
        "take the machine out of learner_instance_types, or set NITRO_DEVICE=cpu"
    )


def _runs_on(capability: Capability, architecture: str) -> bool:
    """Whether a GPU runs an architecture's code.

    Binary code runs on its own generation, from its minor version on. Code that the driver compiles
    runs on every later GPU, too. `a` is for one GPU only and `f` for its family.
    """
    match = _ARCHITECTURE.fullmatch(architecture)
    if match is None:
        return False
    kind, major, minor, suffix = match.groups()
    made_for = (int(major), int(minor))
    if suffix == "a":
        return made_for == capability
    if kind == "sm" or suffix == "f":
        return made_for[0] == capability[0] and made_for[1] <= capability[1]
    return made_for <= capability
