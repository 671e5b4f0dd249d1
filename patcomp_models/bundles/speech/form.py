"""Kinds of bundles with components and files chosen by the form of the model (`whisper`, `transducer`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech import transducer, whisper


class OfForm(KindOfComponents):
    """Whisper, or one of Parakeet's transducers, with an option for samples."""

    audio: bool

    @property
    @abstractmethod
    def form(self) -> whisper.Whisper | transducer.Transducer:
        """The form of the model of the folder.

        Raises:
            BundleError: an option does not fit the model.
        """

    def components(self) -> Sequence[Component]:
        return self.form.components()

    def metadata(self) -> Mapping[str, Any]:
        return self.form.metadata()

    def write_files(self, bundle: Path) -> None:
        self.form.write_files(bundle)
