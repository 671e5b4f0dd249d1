"""Models of time series: one function, of one series.

Where a model gives a distribution, its parameters are the results, `params_df`, `params_loc` and `params_scale` of
Student's t for example, in the scale of the model: `loc` and `scale` take them back. Drawing is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.autoformer import modeling_autoformer

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.replacing import no_mask, replaced

PARAMETERS = "params"
"""The beginning of the names of a distribution's parameters."""


class Series(nn.Module):
    """A model whose inputs are given by name, and whose results are some tensors of its output.

    Args:
        model: of transformers.
        names: of the inputs.
        outputs: of the results; those of a distribution are several.
    """

    def __init__(self, model: Any, names: Sequence[str], outputs: Sequence[str]):
        super().__init__()
        self.model, self.names, self.outputs = model, tuple(names), tuple(outputs)

    def result(self, inputs: Mapping[str, Tensor]) -> Any:
        """What the model computes."""
        return self.model(**inputs)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        made = self.result(dict(zip(self.names, inputs, strict=True)))
        found: list[Tensor] = []
        for name in self.outputs:
            found += made[name] if isinstance(made[name], tuple) else [made[name]]
        return tuple(found)

    def entry(self, inputs: Mapping[str, Tensor]) -> list[Entry]:
        """The function.

        Args:
            inputs: an example.
        """
        with torch.no_grad():
            made = self.result(inputs)
        names: list[str] = []
        for name in self.outputs:
            if isinstance(made[name], tuple):
                names += [f"{PARAMETERS}_{each}" for each in self.model.distribution_output.args_dim]
            else:
                names.append(name)
        return [Entry("main", self, inputs, tuple(names))]


class TimesFm(Series):
    """TimesFM: the mean and the quantiles of the next values.

    Its code takes lists of series and pads them by itself, so that its lengths would be those of an example.
    """

    def result(self, inputs: Mapping[str, Tensor]) -> Any:
        values, padding, *frequency = inputs.values()
        ahead = padding.new_zeros(1, self.model.config.horizon_length)
        padded = (values, torch.cat([padding, ahead], 1), *(each.unsqueeze(0) for each in frequency))
        with replaced(vars(self.model), _preprocess=lambda *given, **options: padded):
            return self.model([values.squeeze(0)], *([[0]] if frequency else []))


class Lagged(Series):
    """The distributions of all next values, without the loss that transformers computes with them."""

    def result(self, inputs: Mapping[str, Tensor]) -> Any:
        made = self.model.model(**inputs)
        return {PARAMETERS: self.model.output_params(made.last_hidden_state), "loc": made.loc, "scale": made.scale}


class Autoformer(Series):
    """Autoformer, whose decoder begins with the seasons of the past: values of the future count nothing."""

    def result(self, inputs: Mapping[str, Tensor]) -> Any:
        past = inputs["past_values"]
        future = past.new_zeros(1, self.model.config.prediction_length, *past.shape[2:])
        with replaced(vars(modeling_autoformer), create_bidirectional_mask=no_mask):
            made = self.model.model(**inputs, future_values=future)
        parameters = self.model.output_params(made.last_hidden_state + made.trend)
        return {PARAMETERS: parameters, "loc": made.loc, "scale": made.scale}


class Chronos(Series):
    """Chronos-Bolt and Chronos-2: quantiles of the next values. Values that were not observed are NaN in its code."""

    def result(self, inputs: Mapping[str, Tensor]) -> Any:
        values, observed = inputs.values()
        most = getattr(self.model.chronos_config, "max_output_patches", None)
        ahead = {} if most is None else {"num_output_patches": most}
        return self.model(torch.where(observed, values, torch.nan), **ahead)


def times_fm(model: Any, folder: Path) -> list[Entry]:
    """TimesFM: `past_values` (1, context), `padding` (1, context) with 1 in front of a shorter series, and `freq` (1,)
    if the model has frequencies."""
    config = model.config
    inputs = {name: torch.zeros(1, config.context_length) for name in ("past_values", "padding")}
    inputs["past_values"] = _values(1, config.context_length)
    inputs = {name: value.to(model.dtype) for name, value in inputs.items()}
    if config.model_type == "timesfm":
        inputs["freq"] = torch.zeros(1, dtype=torch.int64)
    return TimesFm(model, tuple(inputs), ("mean_predictions", "full_predictions")).entry(inputs)


def patched(model: Any, folder: Path) -> list[Entry]:
    """PatchTST and PatchTSMixer: `past_values` (1, context, channels), and which of them were observed, of the same
    shape, if the model asks for it."""
    config, name = model.config, type(model).__name__
    shape = (1, config.context_length, config.num_input_channels)
    inputs = {"past_values": _values(*shape).to(model.dtype)}
    if name.startswith("PatchTSTFor"):
        inputs["past_observed_mask"] = torch.ones(shape, dtype=torch.bool)
    elif name.endswith("ForPrediction"):
        inputs["observed_mask"] = torch.ones(shape, dtype=model.dtype)
    result = _RESULTS[name]
    with torch.no_grad():
        has_distribution = isinstance(model(**inputs)[result], tuple)
    is_scaled = has_distribution and name.endswith("ForPrediction")
    return Series(model, tuple(inputs), (result, *(("loc", "scale") if is_scaled else ()))).entry(inputs)


_RESULTS = {
    "PatchTSTForPrediction": "prediction_outputs", "PatchTSMixerForPrediction": "prediction_outputs",
    "PatchTSTForRegression": "regression_outputs", "PatchTSMixerForRegression": "regression_outputs",
    "PatchTSTForClassification": "prediction_logits", "PatchTSMixerForTimeSeriesClassification": "prediction_outputs",
}  # fmt: skip
"""The name of the result, by class."""


def lagged(model: Any, folder: Path) -> list[Entry]:
    """Time Series Transformer, Informer and Autoformer: the distributions of all next values.

    `past_values` (1, context + longest lag), with `input_size` behind it if that is more than 1; `past_time_features`,
    `past_observed_mask`, `future_time_features`; the static features that the model has. But for Autoformer,
    `future_values` (1, prediction length): a distribution depends on those in front of it, so that a caller that draws
    one value after the other calls the function again with each.
    """
    config = model.config
    past, ahead = config.context_length + max(config.lags_sequence), config.prediction_length
    further = () if config.input_size == 1 else (config.input_size,)
    inputs: dict[str, Tensor] = {
        "past_values": _values(1, past, *further),
        "past_time_features": _values(1, past, config.num_time_features),
        "past_observed_mask": torch.ones(1, past, *further),
    }
    if config.num_static_categorical_features:
        inputs["static_categorical_features"] = torch.zeros(
            1, config.num_static_categorical_features, dtype=torch.int64
        )
    if config.num_static_real_features:
        inputs["static_real_features"] = _values(1, config.num_static_real_features)
    if config.model_type != "autoformer":
        inputs["future_values"] = _values(1, ahead, *further)
    inputs["future_time_features"] = _values(1, ahead, config.num_time_features)
    inputs = {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    if getattr(config, "attention_type", None) == "prob":
        raise PatcompError(
            "this Informer draws the keys that it looks at (attention_type 'prob'), and a converted program draws "
            "nothing; export it by FILE.py:FUNCTION with --random inputs, or train it with attention_type 'full'"
        )
    kind = Autoformer if config.model_type == "autoformer" else Lagged
    return kind(model, tuple(inputs), (PARAMETERS, "loc", "scale")).entry(inputs)


def chronos(model: Any, folder: Path) -> list[Entry]:
    """Chronos-Bolt and Chronos-2: `past_values` and `past_observed_mask`, (1, context); a shorter series is behind
    values that were not observed."""
    shape = (1, model.chronos_config.context_length)
    inputs = {"past_values": _values(*shape).to(model.dtype), "past_observed_mask": torch.ones(shape, dtype=torch.bool)}
    return Chronos(model, tuple(inputs), ("quantile_preds",)).entry(inputs)


def _values(*shape: int) -> Tensor:
    """An example series that repeats itself, above zero."""
    count = torch.Size(shape).numel()
    return (1.5 + torch.sin(torch.arange(count) * 0.7)).reshape(shape)


MAKERS: Mapping[str, Callable[[Any, Path], list[Entry]]] = {
    "timesfm": times_fm, "timesfm2_5": times_fm, "patchtst": patched, "patchtsmixer": patched,
    "time_series_transformer": lagged, "informer": lagged, "autoformer": lagged,
}  # fmt: skip
"""By the kind of the model."""


def time_series(model: Any, folder: Path) -> list[Entry]:
    """The function of a model of time series."""
    return (chronos if hasattr(model, "chronos_config") else MAKERS[model.config.model_type])(model, folder)
