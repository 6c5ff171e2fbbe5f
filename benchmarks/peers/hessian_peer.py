"""Other libraries' Hessian of our surrogate, measured on request; runs in the peers' interpreter.

    python hessian_peer.py pyhessian|eigenthings FILE

FILE holds, by name, the policy's dense layers (`weight.0`, `bias.0`, ...), the samples
(`observation`, `action`, `advantage`), a `direction` and our `product` with it. The first line on
standard output says what the library found; each line read from standard input is answered with the
time it takes to find the spectrum as far as the library can: both ends (hessian-eigenthings, 100
Lanczos steps) or the eigenvalue of largest magnitude (PyHessian's power iteration; its `density`,
which could give both, does not run on current torch).
"""

import json
import math
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

STEPS = 100


class Policy(nn.Module):
    """Dense tanh layers; outputs are means and log-standard deviations."""

    def __init__(self, arrays: dict[str, Tensor]) -> None:
        super().__init__()
        count = sum(name.startswith("weight.") for name in arrays)
        layers: list[nn.Module] = []
        for i in range(count):
            outputs, inputs = arrays[f"weight.{i}"].shape
            dense = nn.Linear(inputs, outputs)
            dense.weight.data = arrays[f"weight.{i}"]
            dense.bias.data = arrays[f"bias.{i}"]
            layers += [dense, nn.Tanh()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, observation: Tensor) -> Tensor:
        """Return the outputs # [N, 2A]."""
        outputs: Tensor = self.layers(observation)
        return outputs


def objective(outputs: Tensor, targets: tuple[Tensor, Tensor]) -> Tensor:
    """Return the surrogate at ratio 1, to be maximised."""
    action, advantage = targets
    mean, log_std = outputs.chunk(2, dim=1)
    z = (action - mean) / log_std.exp()
    log_prob = -(0.5 * z * z + log_std + 0.5 * math.log(2 * math.pi)).sum(1)
    return (advantage * torch.exp(log_prob - log_prob.detach())).mean()


def pyhessian(policy: Policy, data: dict[str, Tensor]) -> tuple[Tensor, Callable[[], list[float]]]:
    """Return the product with the direction, and what finds the largest eigenvalue."""
    from pyhessian import hessian  # type: ignore[import-not-found]
    from pyhessian.utils import hessian_vector_product  # type: ignore[import-not-found]

    inputs, targets = data["observation"], (data["action"], data["advantage"])
    found = hessian(policy, objective, data=(inputs, targets), cuda=False)
    sizes = [parameter.numel() for parameter in policy.parameters()]
    parts = torch.split(data["direction"], sizes)
    moves = [
        part.view(parameter.shape)
        for part, parameter in zip(parts, policy.parameters(), strict=True)
    ]
    product = hessian_vector_product(found.gradsH, found.params, moves)

    def largest() -> list[float]:
        policy.zero_grad()  # it adds to what an earlier one left there
        again = hessian(policy, objective, data=(inputs, targets), cuda=False)
        return [float(again.eigenvalues(maxIter=STEPS, tol=1e-3)[0][0])]

    return torch.cat([part.flatten() for part in product]), largest


def eigenthings(
    policy: Policy, data: dict[str, Tensor]
) -> tuple[Tensor, Callable[[], list[float]]]:
    """Return the product with the direction, and what finds both ends of the spectrum."""
    from hessian_eigenthings import HessianOperator, lanczos  # type: ignore[import-not-found]

    batch = (data["observation"], (data["action"], data["advantage"]))

    def loss(model: nn.Module, part: Any) -> Tensor:
        return objective(model(part[0]), part[1])

    operator = HessianOperator(policy, [batch], loss)

    def both_ends() -> list[float]:
        values = [
            lanczos(operator, k=1, max_iter=STEPS, which=which, seed=0).eigenvalues[0]
            for which in ("LA", "SA")
        ]
        return [float(value) for value in values]

    return operator.matvec(data["direction"]), both_ends


_LIBRARIES = {
    "pyhessian": ("PyHessian", pyhessian),
    "eigenthings": ("hessian-eigenthings", eigenthings),
}


def main() -> None:
    """Serve measurements until standard input ends."""
    torch.set_num_threads(1)  # faster than more for products of this size
    name, build = _LIBRARIES[sys.argv[1]]
    with np.load(sys.argv[2], allow_pickle=False) as arrays:
        data = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
    product, find = build(Policy(data), data)
    ours = data["product"]
    about = {
        "library": f"{name} {version(name)}",
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "product_distance": str(float((product.detach() - ours).norm() / ours.norm())),
        "eigenvalues": " ".join(str(value) for value in find()),
    }
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        start = time.perf_counter()
        find()
        answer = {"steps": STEPS, "seconds": time.perf_counter() - start}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
