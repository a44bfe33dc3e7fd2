"""Reinforcement learning: 64 poles on carts, balanced by a policy that learns from what it did.

    TC_LOGS=graph_breaks python examples/reinforce.py
    TC_LOGS=graph_breaks python examples/reinforce.py --cured

Finding: the environment starts poles again that have fallen, `if fallen.any()`. Which way that goes
is known only once the kernels have run: a graph break (TC110) in every step of the loop.
Cure: choose with `torch.where`, which leaves the poles that stand as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tc

POLES = 64
#: state (POLES, 4), force (POLES,) -> the next state, and which poles have fallen
Physics = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def move(state: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
    """Move carts by 20 ms (Barto, Sutton and Anderson 1983); also return which poles fell.

    Args:
        state: place, speed, angle and speed of the angle: (POLES, 4), in m and rad.
        push: ±1 for ±10 N, (POLES,).
    """
    _, speed, angle, turning = state.unbind(-1)
    sine, cosine = angle.sin(), angle.cos()
    force = (10 * push + 0.05 * turning.square() * sine) / 1.1
    turned = (9.8 * sine - cosine * force) / (0.5 * (4 / 3 - 0.1 * cosine.square() / 1.1))
    pushed = force - 0.05 * turned * cosine / 1.1
    change = torch.stack([speed, pushed, turning, turned], dim=-1)
    state = state + 0.02 * change
    return state, (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.21)


def step(state: Tensor, push: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Move the carts, and start those again whose pole fell."""
    state, fallen = move(state, push)
    if fallen.any():
        state = state.clone()
        state[fallen] = start[fallen]
    return state, fallen


def step_cured(state: Tensor, push: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same without a question to the data."""
    state, fallen = move(state, push)
    return torch.where(fallen[:, None], start, state), fallen


class Policy(nn.Sequential):
    """The logit of a push to the right, for states (n, 4)."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))


@torch.no_grad()
def play(physics: Physics, policy: nn.Module, steps: int, seed: int) -> tuple[Tensor, ...]:
    """Play; return the states, pushes and falls of all steps: (steps, POLES, ...) each."""
    dice = torch.Generator().manual_seed(seed)
    state = 0.05 * torch.randn(POLES, 4, generator=dice)
    states, pushes, falls = [], [], []
    for _ in range(steps):
        right = torch.rand(POLES, generator=dice) < policy(state).sigmoid()
        push = 2.0 * right - 1
        states.append(state)
        state, fallen = physics(state, push, 0.05 * torch.randn(POLES, 4, generator=dice))
        pushes.append(push)
        falls.append(fallen)
    return torch.stack(states), torch.stack(pushes), torch.stack(falls)


def learn(policy: nn.Module, optimizer: torch.optim.Optimizer, played: tuple[Tensor, ...]) -> None:
    """Make pushes likelier that were followed by long balance (REINFORCE, Williams 1992)."""
    states, pushes, falls = played
    balance = torch.zeros(POLES)
    returns = torch.empty(falls.shape)
    for index in reversed(range(len(falls))):
        balance = torch.where(falls[index], 0, 1 + 0.97 * balance)
        returns[index] = balance
    advantage = (returns - returns.mean()) / returns.std()
    likely = nn.functional.logsigmoid(pushes.flatten() * policy(states.flatten(0, 1)))
    loss = -(likely * advantage.flatten()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(physics: Physics, rounds: int, steps: int) -> list[float]:
    """Return how often poles fell, a hundred steps of one pole, in each round."""
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)
    rates = []
    for number in range(rounds):
        played = play(physics, policy, steps, seed=number)
        learn(policy, optimizer, played)
        rates.append(100 * played[2].float().mean().item())
    return rates


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cured", action="store_true", help="the step without its graph break")
    parser.add_argument("--rounds", type=int, default=25, help="%(default)s")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    torch.set_num_threads(1)

    physics = step_cured if options.cured else step
    rates = train(tc.compile(physics), options.rounds, steps=100)
    torch.testing.assert_close(rates[:2], train(physics, 2, steps=100))
    print(f"falls     {rates[0]:.2f} in 100 steps at first, {rates[-1]:.2f} in round {len(rates)}")
    print("matches   eager, fall by fall over the first rounds")


if __name__ == "__main__":
    main()
