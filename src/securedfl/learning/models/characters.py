"""A gated recurrent unit whose gradient is written out, because long chains of small steps are slow in autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional


class CharacterGRU(nn.Module):
    """Embedding, one layer of gated recurrent units and class scores at every position.

    The same parameters and the same function as `torch.nn.Embedding`, `torch.nn.GRU` and `torch.nn.Linear` in a
    row, in about 2/3 of their time on a CPU: what an input adds to the recurrence is computed once per character
    instead of once per position, and gradients of the weights are one product for all positions. With `nn.GRU` a
    whole round of 9 peers takes 1.5 times as long (``python benchmarks/training.py --only round``).

    Parameters
    ----------
    characters
        The number of different inputs.
    embedding, hidden
        Dimensions of the embedding and of the hidden state.
    classes
        The number of scores per position.
    """

    def __init__(self, characters: int, embedding: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)
        self.scores = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map batch x positions to batch x positions x classes."""
        gru: Any = self.gru  # its parameters are attributes that only exist at run time
        by_character = functional.linear(self.embedding.weight, gru.weight_ih_l0, gru.bias_ih_l0)
        # the recurrence stays in the parameters' precision, also where mixed precision is on
        inputs = functional.embedding(x.t(), by_character).to(gru.weight_hh_l0.dtype)
        states: Tensor = _Recurrence.apply(inputs, gru.weight_hh_l0, gru.bias_hh_l0)  # type: ignore[no-untyped-call]
        scores: Tensor = self.scores(states.transpose(0, 1))
        return scores


class _Recurrence(Function):
    """h_t = (1 - z) n + z h_{t-1} with r, z = sigmoid(i + W h + b) and n = tanh(i_n + r (W_n h + b_n)); h_0 = 0.

    ``inputs`` (time x batch x 3 hidden) holds what the input adds to r, z and n, in this order.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        time, batch, _ = inputs.shape
        hidden = weight.shape[1]
        states = inputs.new_zeros(time + 1, batch, hidden)
        gates = inputs.new_empty(time, batch, 2 * hidden)
        news = inputs.new_empty(time, batch, hidden)
        recurrent = inputs.new_empty(time, batch, 3 * hidden)
        transposed = weight.t()
        for t in range(time):
            torch.addmm(bias, states[t], transposed, out=recurrent[t])
            gate = torch.add(inputs[t, :, : 2 * hidden], recurrent[t, :, : 2 * hidden], out=gates[t]).sigmoid_()
            new = torch.addcmul(
                inputs[t, :, 2 * hidden :], gate[:, :hidden], recurrent[t, :, 2 * hidden :], out=news[t]
            ).tanh_()
            torch.lerp(new, states[t], gate[:, hidden:], out=states[t + 1])
        ctx.save_for_backward(weight, states, gates, news, recurrent)
        return states[1:].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, states, gates, news, recurrent = ctx.saved_tensors
        time, batch, hidden = gradient.shape
        reset, update = gates[..., :hidden], gates[..., hidden:]
        # how the arguments of r, z and n move h_t, for all positions at once
        by_new = (1 - update) * (1 - news.square())
        by_update = (states[:-1] - news) * update * (1 - update)
        by_reset = by_new * recurrent[..., 2 * hidden :] * reset * (1 - reset)
        by_recurrent = torch.stack((by_reset, by_update, by_new * reset), 2)
        states_gradient = gradient.clone()
        steps = torch.empty_like(recurrent)
        for t in reversed(range(time)):
            torch.mul(states_gradient[t].unsqueeze(1), by_recurrent[t], out=steps[t].view(batch, 3, hidden))
            if t:
                states_gradient[t - 1].addcmul_(states_gradient[t], update[t]).addmm_(steps[t], weight)
        flat = steps.flatten(0, 1)
        inputs = steps.clone()
        inputs[..., 2 * hidden :] = states_gradient * by_new
        return inputs, flat.t() @ states[:-1].flatten(0, 1), flat.sum(0)
