"""Random numbers as inputs: what PyTorch's drawing operators compute from standard noise, and the noise itself.

The same formulas make the noise an input of a program when it is converted, and give the PyTorch model the same noise
when it is verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.pytorch import HigherOrderOperator, OpOverload, TorchDispatchMode, base_name, schema_of_overload

UNIFORM = "uniform on [0, 1)"
NORMAL = "standard normal"
GUMBEL = "standard Gumbel"


class Noise(Protocol):
    """Gives noise of a distribution, shape and element type."""

    def __call__(self, distribution: str, shape: Sequence[Any], like: torch.dtype, /) -> Tensor: ...


# ---- which operators draw ------------------------------------------------------------------------------

_SWITCHES = ("dropout_p", "dropout", "train", "training")
"""Arguments that switch off the random numbers of an operator. The operator draws if all of these arguments are on."""


def draws(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of an operator draws random numbers."""
    if not isinstance(func, OpOverload) or torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    given = _arguments(func, args, kwargs)
    if given.get("num_layers") == 1:
        return False  # recurrent networks have their dropout between layers
    if "train" in given and "p" in given:  # a dropout, for which no mode is training
        return given["train"] is not False and 0 < given["p"] < 1
    return all(given[name] for name in _SWITCHES if name in given)


def _arguments(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name, with the defaults of the schema."""
    declared = schema_of_overload(func).arguments
    given = dict(zip((argument.name for argument in declared), args, strict=False)) | dict(kwargs)
    return {each.name: each.default_value for each in declared if each.has_default_value()} | given


# ---- what they compute of noise ------------------------------------------------------------------------


class NotFromNoiseError(EvaluationError):
    """An operator draws random numbers that no formula computes from standard noise."""


class Draws(TorchDispatchMode):
    """Compute the random numbers of each operator that draws some from given noise.

    Args:
        noise: called for each draw, in order.

    Raises:
        NotFromNoiseError: there is no formula for an operator.
    """

    supports_higher_order_operators = True

    def __init__(self, noise: Noise) -> None:
        super().__init__()
        self._noise = noise

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator) or not draws(func, args, kwargs):
            return func(*args, **kwargs)
        name, given = base_name(func), _arguments(func, args, kwargs)
        in_place = name.endswith("_")
        formula = _FORMULAS.get(name.removesuffix("_")) if func.namespace == "aten" else None
        if formula is None or "out" in given:
            reason = _WITHOUT_FORMULA.get(name, "there is no formula that computes them from standard noise")
            raise NotFromNoiseError(f"{func.name()} draws random numbers: {reason}")
        result = formula(self._noise, given)
        return given["self"].copy_(result) if in_place else result


_REJECTION = "PyTorch draws as many numbers as it needs until one is accepted"
_WITHOUT_FORMULA = dict.fromkeys(("poisson", "binomial", "_standard_gamma", "_sample_dirichlet"), _REJECTION)

_Given = Mapping[str, Any]
_Formula = Callable[[Noise, _Given], Any]


def _computing(dtype: torch.dtype) -> torch.dtype:
    """The element type of noise from which numbers of another type are computed: noise of half precision would have
    too few different values."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _shape(given: _Given) -> Sequence[Any]:
    return given["size"] if "size" in given else given["self"].shape  # type: ignore[no-any-return]


def _dtype(given: _Given) -> torch.dtype:
    """The element type of a tensor that an operator makes."""
    if given.get("dtype") is not None:
        return given["dtype"]  # type: ignore[no-any-return]
    return given["self"].dtype if "self" in given else torch.get_default_dtype()


def _rand(noise: Noise, given: _Given) -> Tensor:
    return noise(UNIFORM, _shape(given), _real(_dtype(given)))


def _randn(noise: Noise, given: _Given) -> Tensor:
    return noise(NORMAL, _shape(given), _real(_dtype(given)))


def _real(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        raise NotFromNoiseError(
            "complex random numbers cannot be inputs: draw their real and imaginary parts, and use torch.complex"
        )
    return dtype


def _uniform(noise: Noise, given: _Given) -> Tensor:
    low, high = given["from"], given["to"]
    return noise(UNIFORM, given["self"].shape, _real(given["self"].dtype)) * (high - low) + low


def _normal(noise: Noise, given: _Given) -> Tensor:
    mean, std = given["mean"], given["std"]
    tensors = [each for each in (mean, std) if isinstance(each, Tensor)]
    if tensors:
        shape, dtype = torch.broadcast_shapes(*(each.shape for each in tensors)), tensors[0].dtype
    else:
        shape, dtype = _shape(given), _dtype(given)
    return noise(NORMAL, shape, _real(dtype)) * std + mean


def _log_normal(noise: Noise, given: _Given) -> Tensor:
    return _normal(noise, given).exp()


_LEAST = 2.0**-24
"""The smallest number of an exponential distribution: it has no 0, by which samplers divide."""


def _exponential(noise: Noise, given: _Given) -> Tensor:
    own = given["self"]
    standard = -torch.log1p(-noise(UNIFORM, own.shape, _computing(own.dtype)))
    return (standard.clamp(min=_LEAST) / given["lambd"]).to(own.dtype)


def _cauchy(noise: Noise, given: _Given) -> Tensor:
    own = given["self"]
    angle = (noise(UNIFORM, own.shape, _computing(own.dtype)) - 0.5) * math.pi
    return (angle.tan() * given["sigma"] + given["median"]).to(own.dtype)


def _geometric(noise: Noise, given: _Given) -> Tensor:
    own, p = given["self"], given["p"]
    failures = torch.log1p(-noise(UNIFORM, own.shape, _computing(own.dtype))) / (math.log1p(-p) if p < 1 else -math.inf)
    return failures.ceil().clamp(min=1).to(own.dtype)


def _bernoulli(noise: Noise, given: _Given) -> Tensor:
    own, p = given["self"], given.get("p")
    p = own if p is None else p
    wide = p.dtype if isinstance(p, Tensor) else own.dtype
    return (noise(UNIFORM, own.shape, _computing(wide)) < p).to(own.dtype)


_MOST_INTEGERS = 2**24
"""How many integers noise of float32 can tell apart."""


def _integers(noise: Noise, given: _Given, shape: Sequence[Any], dtype: torch.dtype) -> Tensor:
    low, high = given.get("low", given.get("from", 0)), given.get("high", given.get("to"))
    if high is None:
        raise NotFromNoiseError("noise cannot choose among integers without an upper bound: give the op its bounds")
    count = high - low
    if isinstance(count, int) and count > _MOST_INTEGERS:
        raise NotFromNoiseError(
            f"noise cannot choose among {count:,} integers: it distinguishes at most {_MOST_INTEGERS:,}"
        )
    chosen = (noise(UNIFORM, shape, torch.float32) * count).to(torch.int32).long()  # int32 says that 32 bits suffice
    last = count - 1
    return ((chosen.minimum(last) if isinstance(last, Tensor) else chosen.clamp(0, last)) + low).to(dtype)


def _randint(noise: Noise, given: _Given) -> Tensor:
    return _integers(noise, given, _shape(given), _dtype(given) if "self" in given else _integral(given))


def _integral(given: _Given) -> torch.dtype:
    """The element type of integers; the schemas have a number of C++ as the default."""
    return given["dtype"] if isinstance(given["dtype"], torch.dtype) else torch.int64


def _random(noise: Noise, given: _Given) -> Tensor:
    return _integers(noise, given, given["self"].shape, given["self"].dtype)


def _randperm(noise: Noise, given: _Given) -> Tensor:
    return noise(UNIFORM, (given["n"],), torch.float32).argsort().to(_integral(given))


def _multinomial(noise: Noise, given: _Given) -> Tensor:
    """The largest of log(weight) + Gumbel noise has each index with the probability of its weight, and the largest few
    are a sample without replacement (Kool et al. 2019, "Stochastic Beams and Where to Find Them")."""
    weights, count = given["self"], given["num_samples"]
    logarithms = weights.to(_computing(weights.dtype)).log()
    if given["replacement"]:
        shape = (*weights.shape[:-1], count, weights.shape[-1])
        return (logarithms.unsqueeze(-2) + noise(GUMBEL, shape, logarithms.dtype)).argmax(-1)
    keys = logarithms + noise(GUMBEL, weights.shape, logarithms.dtype)
    return keys.argmax(-1, keepdim=True) if isinstance(count, int) and count == 1 else keys.topk(count, -1).indices


def _native_dropout(noise: Noise, given: _Given) -> tuple[Tensor, Tensor]:
    own, p = given["input"], given["p"]
    kept = noise(UNIFORM, own.shape, _computing(own.dtype)) < 1 - p
    return own * kept * (1 / (1 - p) if p < 1 else 0.0), kept


def _rrelu(noise: Noise, given: _Given) -> tuple[Tensor, Tensor]:
    own, lower, upper = given["self"], given["lower"], given["upper"]
    slope = noise(UNIFORM, own.shape, own.dtype) * (upper - lower) + lower
    slope = torch.where(own <= 0, slope, 1.0)
    return own * slope, slope


def _rrelu_with_noise(noise: Noise, given: _Given) -> Tensor:
    result, slope = _rrelu(noise, given)
    given["noise"].copy_(slope)
    return result


_FORMULAS: dict[str, _Formula] = {
    "bernoulli": _bernoulli,
    "cauchy": _cauchy,
    "exponential": _exponential,
    "geometric": _geometric,
    "log_normal": _log_normal,
    "multinomial": _multinomial,
    "native_dropout": _native_dropout,
    "normal": _normal,
    "normal_functional": _normal,
    "rand": _rand,
    "rand_like": _rand,
    "randint": _randint,
    "randint_like": _randint,
    "randn": _randn,
    "randn_like": _randn,
    "random": _random,
    "randperm": _randperm,
    "rrelu_with_noise": _rrelu_with_noise,
    "rrelu_with_noise_functional": _rrelu,
    "uniform": _uniform,
}


# ---- the noise -----------------------------------------------------------------------------------------


def drawn(signature: Any, values: Mapping[str, Any], dims: Any, seed: int) -> dict[str, Tensor]:
    """The inputs of a program that are random numbers and are not given.

    Args:
        signature: the program's, a `patcomp.interface.signature.EntrySignature`.
        values: what is given of its inputs and states, by name.
        dims: its dimensions, a `patcomp.interface.dims.Dims`.
        seed: of PyTorch's generator. An input is the same whether others are given or not.

    Raises:
        EvaluationError: what is given does not determine the shape of an input.
        TypeError: the seed is no integer.
    """
    if not isinstance(seed, int):
        raise TypeError(f"seed must be an integer, got {type(seed).__name__}")
    generator = torch.Generator().manual_seed(seed)
    sizes: dict[str, int] | None = None
    found: dict[str, Tensor] = {}
    for spec in signature.inputs:
        if not spec.distribution:
            continue
        own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
        if spec.name in values:
            continue
        shape = list(spec.shape)
        for axis in (axis for axis, size in enumerate(shape) if not isinstance(size, int)):
            sizes = (
                dims.sizes_of({name: to_tensor(value) for name, value in values.items()}) if sizes is None else sizes
            )
            extent = dims.extents.get((spec.name, axis))
            shape[axis] = extent and extent.given(sizes).number
            if shape[axis] is None:
                raise EvaluationError(f"the inputs do not determine the size of {spec.name!r} in dimension {axis}")
        found[spec.name] = noise_of(spec.distribution, shape, TORCH_DTYPES[spec.element_type], own)
    return found


def noise_of(distribution: str, shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Noise of a distribution."""
    made = torch.empty(shape, dtype=dtype)
    if distribution == NORMAL:
        return made.normal_(generator=generator)
    if distribution == GUMBEL:
        return -made.exponential_(generator=generator).log()
    return made.uniform_(generator=generator)


@contextmanager
def drawing(inputs: Sequence[tuple[str, str, Tensor]]) -> Iterator[None]:
    """Give a model noise where it draws random numbers.

    Args:
        inputs: name, distribution and noise of each draw, in order.

    Raises:
        EvaluationError: the model draws other random numbers.
    """
    rest = list(inputs)

    def noise(distribution: str, shape: Sequence[Any], like: torch.dtype) -> Tensor:
        wanted = f"{distribution} of shape {tuple(shape)}"
        if not rest:
            raise _other_draws(f"it draws more, {wanted}")
        name, declared, value = rest.pop(0)
        if declared != distribution or tuple(value.shape) != tuple(shape):
            there = f"{declared} of shape {tuple(value.shape)}"
            raise _other_draws(f"it draws {wanted}, where the input {name!r} is {there}")
        return value.to(like, copy=True)  # the model may write to the noise

    # `torch.cond` compiles itself, which a mode disturbs
    with torch.compiler.set_stance("force_eager"), Draws(noise):
        yield
    if rest:
        raise _other_draws(f"it draws nothing for the input {rest[0][0]!r}")


def _other_draws(how: str) -> EvaluationError:
    return EvaluationError(
        f"the model does not draw the random numbers that the program has as inputs: {how}; give the model in the mode "
        "in which it was exported (train or eval), or compare with the exported program, exported.module()"
    )
