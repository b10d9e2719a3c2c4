"""PATE-GAN (Jordon, Yoon, van der Schaar 2019): noisy votes of critics train a student, which trains the generator.

Each teacher, a critic on its own shard, votes on a generated image; the votes of all teachers are counted with noise.
A student discriminator learns to predict the counts, from generated images alone, and the generator follows the
student's gradient. What has to be sound here:

- A vote is -1/2 or +1/2, and a record is in one shard, whose teacher may change its vote: a count changes by at most 1,
  twice the bound, and noise is calibrated to that.
- Every image that is voted on, in every step, is counted, in one charge.
- Student and generator see noisy counts alone; training them longer costs nothing. The paper's data-dependent
  accounting, by which agreement costs less, is not used.

Differences: critics of images soon tell every generated image from records, and votes that all say the same teach
nothing (measured: 0.498 of 0.5 say "generated"). So a critic votes whether an image is more like a record than the
typical generated image of its class is: its score is compared with a running mean of its own scores at generated
images. The student learns from the counts themselves instead of their majority, from those of the last steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.contracts import Sampler, Synthesizer
from sfumato.errors import expect_within
from sfumato.privacy import Mechanism, PrivateImages, Teachers
from sfumato.synthesis.guided_generator import below
from sfumato.synthesis.hinge_critics import HingeCritic
from sfumato.synthesis.shard_critics import one_hot
from sfumato.synthesis.shard_guidance import Guide, ShardGuidance
from sfumato.synthesis.shard_networks import State, at_label
from sfumato.values import Images, Spec

VOTE = 0.5  # its size, and so the bound of an answer
MEMORY = 0.7  # of a critic's typical scores, from one lesson to the next
BETAS = (0.5, 0.99)  # of Adam


@dataclass(frozen=True)
class PATEGAN(ShardGuidance, Synthesizer):
    """Hyperparameters, all public: these and those of `ShardGuidance`."""

    student_width: int = 128
    student_steps: int = 10  # of the student, for each step of the generator
    student_batch: int = 200  # counted images in a step of the student
    student_rate: float = 2e-3
    student_decay: float = 1e-3  # of the student's weights, relative to a step
    kept_steps: int = 20  # whose counts the student learns from

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 10**6
        expect_within(
            self,
            student_width=(1, most),
            student_steps=(1, most),
            student_batch=(1, most),
            student_rate=(1e-9, 100),
            student_decay=(0, 100),
            kept_steps=(1, most),
        )

    def plan(self, spec: Spec) -> Sequence[Mechanism]:
        return self.questions("votes on how real generated images look, by critics on parts of the data")

    def fit(self, private: PrivateImages, public: Images | None) -> Sampler:
        model = VotingCritic.of(self, private.spec)
        return self.trained(private, self.plan(private.spec), model, Student(self, private.spec), what="pate-gan")


@dataclass(frozen=True)
class VotingCritic(HingeCritic):
    """The critic of one shard, which votes whether an image is more like a record than generated images are."""

    @property
    def answers_from(self) -> tuple[str, ...]:
        return (*self.network.weights, "typical")

    def begin(self, number: int) -> State:
        return {**HingeCritic.begin(self, number), "typical": torch.zeros(self.network.outputs)}

    def learn(
        self, state: State, images: Tensor, labels: Tensor, present: Tensor, public: tuple[Tensor, Tensor]
    ) -> State:
        after = HingeCritic.learn(self, state, images, labels, present, public)
        fake, fake_labels = public
        of_class = one_hot(fake_labels, self.network.outputs)  # (f, k)
        counts = of_class.sum(0)
        now = self.score(after, fake, fake_labels) @ of_class / counts.clamp(min=1)
        moved = MEMORY * state["typical"] + (1 - MEMORY) * now
        return {**after, "typical": torch.where(counts > 0, moved, state["typical"])}

    def answer(self, state: State, query: tuple[Tensor, Tensor]) -> Tensor:
        z, label = query
        above = self.score(state, z, label) > at_label(state["typical"], label)
        return torch.where(above, VOTE, -VOTE)[None]


class Student(Guide):
    """A discriminator that learns from noisy counts, and whose gradient the generator follows."""

    def __init__(self, settings: PATEGAN, spec: Spec) -> None:
        self._settings = settings
        self._draw = torch.Generator().manual_seed(settings.seed + 2)
        width = settings.student_width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed + 2)
            self._network = nn.Sequential(
                nn.Linear(settings.sees(spec).length, width),
                nn.LeakyReLU(0.2),
                nn.Linear(width, width),
                nn.LeakyReLU(0.2),
                nn.Linear(width, len(spec.classes)),
            )
        self._optimizer = torch.optim.AdamW(
            self._network.parameters(), settings.student_rate, BETAS, weight_decay=settings.student_decay
        )
        self._counted: tuple[Tensor, ...] = ()  # images (n, d), their labels and shares of votes (n,)

    def directions(self, teachers: Teachers, seen: Tensor, labels: Tensor) -> Tensor:
        """Its gradient at these images, after it has learnt from the votes on them."""
        counts = teachers((seen, labels), l2_bound=VOTE)[:, 0].float()
        new: tuple[Tensor, ...] = (seen, labels, counts / self._settings.shards)
        if self._counted:
            new = tuple(torch.cat(parts) for parts in zip(self._counted, new, strict=True))
        self._counted = tuple(part[-self._settings.kept_steps * len(seen) :] for part in new)
        for _ in range(self._settings.student_steps):
            self._learn()
        followed = seen.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self._scores(followed, labels).sum(), followed)
        return gradient

    def _scores(self, z: Tensor, labels: Tensor) -> Tensor:
        scores: Tensor = self._network(z).gather(1, labels[:, None])[:, 0]
        return scores

    def _learn(self) -> None:
        images, labels, shares = self._counted
        chosen = torch.randint(len(images), (self._settings.student_batch,), generator=self._draw)
        loss = (self._scores(images[chosen], labels[chosen]) - shares[chosen]).square().mean()
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def state(self) -> dict[str, Tensor]:
        state = {"draw": self._draw.get_state()}
        state |= {f"counted.{number}": part for number, part in enumerate(self._counted)}
        state |= {f"network.{name}": value.clone() for name, value in self._network.state_dict().items()}
        for number, parameter in enumerate(self._network.parameters()):
            own = self._optimizer.state[parameter]
            state |= {f"adam.{number}.{name}": value.clone() for name, value in own.items()}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        if not state:
            return
        self._draw.set_state(state["draw"])
        self._counted = tuple(state[f"counted.{number}"] for number in range(3))
        self._network.load_state_dict(below(state, "network"))
        for number, parameter in enumerate(self._network.parameters()):
            self._optimizer.state[parameter] = below(state, f"adam.{number}")
