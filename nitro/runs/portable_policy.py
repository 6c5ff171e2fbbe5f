"""A policy from `nitro export`, for any Python with NumPy.

This file needs no other part of Nitro. Copy it with `policy.safetensors`, and write:

    from policy import Policy

    policy = Policy("policy.safetensors")
    action = policy.act(observation)

A recurrent policy has a state: call `policy.reset()` at the start of an episode.

`python policy.py policy.safetensors` acts on one observation of zeros.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4"}
_MAX_PIXEL = np.float32(255.0)


_ACTIVATIONS: dict[str, Any] = {
    "tanh": np.tanh,
    "relu": lambda values: np.maximum(values, 0),
    "elu": lambda values: np.where(values > 0, values, np.expm1(np.minimum(values, 0))),
}


class Policy:
    """Returns the most likely actions, in the form for `env.step`."""

    def __init__(self, path: str | Path) -> None:
        """Read the file `policy.safetensors`."""
        raw = Path(path).read_bytes()
        begin = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:begin])
        self._said: dict[str, str] = header.pop("__metadata__")
        self._arrays = {name: _array(raw[begin:], entry) for name, entry in header.items()}
        self._convolutions = json.loads(self._said.get("convolutions", "[]"))
        self._images = json.loads(self._said.get("images", "[]"))
        self._num_layers = sum(name.startswith("policy.") for name in self._arrays) // 2
        shape = self._said.get("image_shape")
        first: Any = self._arrays["policy.0.weight"]
        self.observation_shape: tuple[int, ...] = (
            (first.shape[1],) if shape is None else tuple(int(size) for size in shape.split(","))
        )
        if self._images:
            pixels = sum(math.prod(image["shape"]) for image in self._images)
            self.observation_shape = (pixels + int(self._said["numbers"]),)
        self._state: Any = None

    def reset(self) -> None:
        """Reset the recurrent state at the start of an episode."""
        self._state = None

    def act(self, observation: Any) -> Any:
        """Return the action for one observation, or the actions for several [N, ...]."""
        shape, parts = self.observation_shape, self._said.get("observation_parts", "")
        order = f", in this order: {parts} (choices one-hot, images channels-first)"
        expected = f"expected an array {shape}{order if parts else ''}"
        try:
            # A dict is no array, nor are parts of several shapes.
            seen = np.asarray(observation, np.float32)
        except (TypeError, ValueError) as error:
            kind = type(observation).__name__
            raise TypeError(f"observation is a {kind}, {expected}") from error
        leading = seen.shape[: max(0, seen.ndim - len(shape))]
        if seen.shape[len(leading) :] != shape:
            raise ValueError(f"observation is {seen.shape}, {expected}")
        action = self._actions(self._outputs(seen.reshape(-1, *self.observation_shape)))
        return action.reshape(leading + action.shape[1:])

    def _outputs(self, values: Any) -> Any:
        observation = values
        values, begin = self._looked_at(self._seen(values))
        for i in range(begin, self._num_layers):
            weight, bias = (self._arrays[f"policy.{i}.{name}"] for name in ("weight", "bias"))
            if "recurrent" in self._said and i == self._num_layers - 2:
                values = self._recalled(values, weight, bias)
                continue
            if i < len(self._convolutions):
                values = _convolved(values, weight, bias, *self._convolutions[i])
            else:
                values = values.reshape(len(values), -1) @ weight.T + bias
            if i < self._num_layers - 1:
                if self._said.get("layer_norm") == "yes":
                    centred = values - values.mean(axis=1, keepdims=True)
                    values = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-5)
                values = _ACTIVATIONS[self._said["activation"]](values)
        if self._said.get("mask") == "yes":  # forbidden actions are never chosen
            values = values + (observation[:, -values.shape[1] :] - 1) * 1e9
        return values

    def _seen(self, values: Any) -> Any:
        """Return the network's input for observations."""
        if self._convolutions:
            return values / _MAX_PIXEL
        if "observation_mean" not in self._arrays:
            return values
        mean, scale = (self._arrays[f"observation_{name}"] for name in ("mean", "scale"))
        clip, pixels = float(self._said["observation_clip"]), values.shape[1] - len(mean)
        numbers = np.clip((values[:, pixels:] - mean) * scale, -clip, clip)
        return np.concatenate((values[:, :pixels], numbers), axis=1)

    def _looked_at(self, values: Any) -> Any:
        """Return image networks' outputs joined with other numbers, and their number of layers."""
        features, number = [], 0
        for image in self._images:
            size = math.prod(image["shape"])
            seen, values = values[:, :size].reshape(-1, *image["shape"]), values[:, size:]
            seen = seen / _MAX_PIXEL
            for i in range(image["layers"]):
                weight, bias = (self._arrays[f"policy.{number}.{p}"] for p in ("weight", "bias"))
                if i < len(image["convolutions"]):
                    seen = _convolved(seen, weight, bias, *image["convolutions"][i])
                else:
                    seen = seen.reshape(len(seen), -1) @ weight.T + bias
                seen, number = np.maximum(seen, 0), number + 1
            features.append(seen.reshape(len(seen), -1))
        return np.concatenate((*features, values), axis=1) if features else values, number

    def _recalled(self, values: Any, weight: Any, bias: Any) -> Any:
        """Return the outputs of the recurrent cells, and update their state."""
        is_lstm = self._said["recurrent"] == "lstm"
        units = len(bias) // (4 if is_lstm else 3)
        if self._state is None:
            self._state = np.zeros((len(values), units * (2 if is_lstm else 1)), np.float32)
        if len(self._state) != len(values):
            raise ValueError(f"{len(values)} observations for {len(self._state)} episodes")
        before, cells = self._state[:, :units], self._state[:, units:]
        given = values @ weight[:, :-units].T + bias
        recalled = before @ weight[:, -units:].T
        if is_lstm:
            enters, keeps, new, shows = np.split(given + recalled, 4, axis=1)
            cells = _sigmoid(keeps) * cells + _sigmoid(enters) * np.tanh(new)
            outputs = _sigmoid(shows) * np.tanh(cells)
            self._state = np.concatenate((outputs, cells), axis=1)
            return outputs
        (reset, keeps, new), parts = np.split(given, 3, axis=1), np.split(recalled, 3, axis=1)
        new = np.tanh(new + _sigmoid(reset + parts[0]) * parts[2])
        self._state = new + _sigmoid(keeps + parts[1]) * (before - new)
        return self._state

    def _actions(self, outputs: Any) -> Any:
        start = self._numbers("action_start", int)
        if self._said["distribution"] == "categorical":
            return outputs.argmax(axis=1) + (start[0] if start else 0)
        if self._said["distribution"] == "multi_categorical":
            ends = np.cumsum(self._numbers("num_choices", int))[:-1]
            chosen = [part.argmax(axis=1) for part in np.split(outputs, ends, axis=1)]
            return np.stack(chosen, axis=1) + np.array(start or [0])
        low, high = (np.array(self._numbers(f"action_{end}", float)) for end in ("low", "high"))
        action = outputs[:, : len(low)]
        if self._said["distribution"] == "squashed_gaussian":
            action = np.tanh(action)
        if self._said.get("action_mapping", "rescale") == "rescale":
            # Halved before the subtraction: the bounds may be as far apart as float32 allows.
            action = action * (high / 2 - low / 2) + (high / 2 + low / 2)
        return np.clip(action, low, high).astype(np.float32)

    def _numbers(self, name: str, kind: type) -> list[Any]:
        return [kind(text) for text in self._said.get(name, "").split(",") if text]


def _sigmoid(values: Any) -> Any:
    return 0.5 * np.tanh(0.5 * values) + 0.5


def _array(data: bytes, entry: dict[str, Any]) -> Any:
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[begin:end], _TYPES[entry["dtype"]]).reshape(entry["shape"])


def _convolved(images: Any, weight: Any, bias: Any, stride: int, padding: list[list[int]]) -> Any:
    padded = np.pad(images, ((0, 0), (0, 0), *padding))
    patches = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    patches = patches[:, :, ::stride, ::stride]
    return np.einsum("nchwij,fcij->nfhw", patches, weight, optimize=True) + bias[:, None, None]


if __name__ == "__main__":
    loaded = Policy(sys.argv[1])
    sys.stdout.write(f"{loaded.act(np.zeros(loaded.observation_shape))}\n")
