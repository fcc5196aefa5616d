"""How long decoding takes by the law of `CostModel`, many steps at once."""

import math

from runner.engines.dispatch import CostModel


def steps_s(law: CostModel, steps: int, batch: int, context_tokens: int) -> float:
    """Return how long `steps` decoding steps take; every one makes each context a token longer."""
    growth_s = law.per_context_token_s * batch * steps * (steps - 1) / 2
    return steps * law.step_of_s(batch, context_tokens) + growth_s


def steps_within(law: CostModel, seconds: float, batch: int, context_tokens: int) -> int:
    """Return how many steps have to be made until at least `seconds` have passed."""
    if seconds <= 0:
        return 0
    growth_s = law.per_context_token_s * batch / 2
    slope_s = law.step_of_s(batch, context_tokens) - growth_s
    guess = 2 * seconds / (slope_s + math.sqrt(slope_s**2 + 4 * growth_s * seconds))
    steps = max(int(guess) - 1, 0)
    while steps_s(law, steps, batch, context_tokens) < seconds - 1e-9:
        steps += 1
    return steps
