"""History encoders: causal maps from embeddings h (B, T, E) to representations z (B, T, E)."""

from kalmanac.encoders.dropout import Dropout, draw_dropout_from
from kalmanac.encoders.encoder import HistoryEncoder, State
from kalmanac.encoders.kalman import Beliefs, KalmanLayer
from kalmanac.encoders.kalman_block import KalmanBlock
from kalmanac.encoders.kalman_encoder import KalmanEncoder
from kalmanac.encoders.mamba import MambaBlock
from kalmanac.encoders.memoryless import Memoryless
from kalmanac.encoders.projection import Linear
from kalmanac.encoders.recurrent import GRUEncoder, LSTMEncoder
from kalmanac.encoders.s5 import S5Block
from kalmanac.encoders.ssm import SSMLayer
from kalmanac.encoders.stack import Stack
from kalmanac.encoders.table import ENCODERS, check_encoder, encoder_settings, make_encoder
from kalmanac.encoders.transformer import TransformerEncoder

__all__ = [
    "ENCODERS",
    "Beliefs",
    "Dropout",
    "GRUEncoder",
    "HistoryEncoder",
    "KalmanBlock",
    "KalmanEncoder",
    "KalmanLayer",
    "LSTMEncoder",
    "Linear",
    "MambaBlock",
    "Memoryless",
    "S5Block",
    "SSMLayer",
    "Stack",
    "State",
    "TransformerEncoder",
    "check_encoder",
    "draw_dropout_from",
    "encoder_settings",
    "make_encoder",
]
