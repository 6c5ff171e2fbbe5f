"""A GPU is refused at the start when this build of torch has no kernels for it."""

import re

import pytest
import torch

from services.learner.device import (
    Capability,
    DeviceError,
    require_devices,
    require_kernels,
    training_device,
)

CUDA_13 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")
CUDA_12_6 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
V100, T4, A10G, L4, H100, BLACKWELL = (7, 0), (7, 5), (8, 6), (8, 9), (9, 0), (12, 0)


@pytest.mark.parametrize(
    ("architectures", "capabilities"),
    [
        (CUDA_13, (T4, A10G, L4, H100, BLACKWELL)),
        (CUDA_12_6, (V100, T4, A10G, L4, H100)),
        (("compute_70",), (V100, T4, BLACKWELL)),
        (("sm_90a",), (H100,)),
        (("sm_120f",), (BLACKWELL, (12, 1))),
    ],
)
def test_a_gpu_with_kernels_is_taken(
    architectures: tuple[str, ...], capabilities: tuple[Capability, ...]
) -> None:
    for capability in capabilities:
        require_kernels("GPU", capability, architectures)


@pytest.mark.parametrize(
    ("architectures", "capability"),
    [
        (CUDA_13, V100),
        (CUDA_12_6, BLACKWELL),
        (("sm_86",), (8, 0)),
        (("compute_80",), T4),
        (("sm_90a",), (9, 1)),
        (("compute_120f",), (13, 0)),
        ((), H100),
        (("gfx942",), H100),
    ],
)
def test_a_gpu_without_kernels_is_refused(
    architectures: tuple[str, ...], capability: Capability
) -> None:
    with pytest.raises(DeviceError, match="no kernels for GPU"):
        require_kernels("GPU", capability, architectures)


def test_the_refusal_names_gpu_build_and_fix() -> None:
    expected = (
        f"torch {re.escape(torch.__version__)} has no kernels for Tesla V100 \\(sm_70\\), only "
        r"sm_75, .*TORCH_BUILD \(cu126 .*learner_instance_types, or set NITRO_DEVICE=cpu"
    )
    with pytest.raises(DeviceError, match=expected):
        require_kernels("Tesla V100", V100, CUDA_13)


def test_the_device_is_the_one_that_is_asked_for() -> None:
    assert training_device("cpu") == torch.device("cpu")
    has_gpu = torch.cuda.is_available()
    assert training_device("auto") == torch.device("cuda" if has_gpu else "cpu")


def test_ranks_on_the_cpu_need_no_gpu_and_others_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    require_devices(torch.device("cpu"), 16)
    require_devices(torch.device("cuda"), 4)
    with pytest.raises(DeviceError, match=r"NITRO_LEARNER_RANKS is 5, but torch finds 4 GPU\(s\)"):
        require_devices(torch.device("cuda"), 5)
