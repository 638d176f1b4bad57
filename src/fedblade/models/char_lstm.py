"""A recurrent network over characters, LEAF's for Shakespeare (Caldas et al., 2018)."""

from torch import Tensor, nn

from fedblade.core.errors import Misconfigured
from fedblade.core.registry import models
from fedblade.models._backbone import Backbone
from fedblade.models._layers import require_positive


class CharEmbedding(nn.Module):
    """Vectors of character numbers. The numbers may be floats, as all samples are floats when a model gets them."""

    def __init__(self, num_characters: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(num_characters, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Vectors [batch, width, steps] of characters [batch, steps]."""
        vectors: Tensor = self.table(inputs.long())
        return vectors.transpose(1, 2)


class StackedLstm(nn.Module):
    """LSTM layers on sequences with the channels as the second axis, as in every other stage."""

    def __init__(self, width_in: int, width_out: int, num_layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width_in, width_out, num_layers, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Top layer's outputs [batch, width_out, steps] of sequences [batch, width_in, steps]."""
        outputs: Tensor = self.lstm(inputs.transpose(1, 2))[0]
        return outputs.transpose(1, 2)


class CharLstm(Backbone):
    """Embedding of width 8, two LSTM layers of 256 units; the features are the top layer's output at the last step."""

    stages = ("embedding", "recurrent")

    def __init__(self, num_characters: int) -> None:
        super().__init__()
        self.dim = 256
        self.embedding = CharEmbedding(num_characters, 8)
        self.recurrent = StackedLstm(8, self.dim, num_layers=2)

    def features(self, inputs: Tensor) -> Tensor:
        """Features [batch, 256] of character numbers [batch, steps]."""
        features: Tensor = self.recurrent(self.embedding(inputs))[:, :, -1]
        return features


@models.register()
def char_lstm(input_shape: tuple[int, ...], num_characters: int = 80) -> CharLstm:
    """Two LSTM layers over characters numbered 0 to num_characters - 1, 256 features."""
    if len(input_shape) != 1 or input_shape[0] < 1:
        raise Misconfigured(
            f"model 'char_lstm' got inputs of shape {tuple(input_shape)}; expected sequences (steps,) of character "
            f"numbers. Use model=mlp for other inputs."
        )
    require_positive("char_lstm", num_characters=num_characters)
    return CharLstm(num_characters)
