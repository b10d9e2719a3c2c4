"""Signals of membership in a classifier's logits: confidences, losses, and attack models that learn from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

from sfumato.errors import DataError, NotApplicable
from sfumato.values import Exposed

Judge = Callable[[Tensor], Tensor]  # features of candidates in, probabilities of membership out
Learner = Callable[[Tensor, Tensor], Judge]  # features and memberships in, a judge of others out


def confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """The logit-scaled confidence log(p_y / (1 - p_y)) of Carlini et al. (2022), exact also for confident networks."""
    logits, own = logits.double(), labels.unsqueeze(-1)
    # p_y / (1 - p_y) = exp(z_y) / sum of the other exp(z_c): no difference of numbers close to one is taken.
    others = logits.scatter(-1, own, -torch.inf).logsumexp(-1)
    return logits.gather(-1, own).squeeze(-1) - others


def log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of the true class's probability: minus the cross-entropy loss."""
    return logsigmoid(confidence(logits, labels))


def modified_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Song and Mittal (2021): -(1 - p_y) log p_y - sum over c != y of p_c log(1 - p_c); 0 is sure and right."""
    logits, own, top = logits.double(), labels.unsqueeze(-1), logits.argmax(-1)
    log_p = log_softmax(logits, -1)
    # Only the largest probability can be so near to one that 1 - p would lose its digits.
    log_rest = torch.log1p(-log_p.exp()).scatter(-1, top.unsqueeze(-1), logsigmoid(-confidence(logits, top))[..., None])
    others = (log_p.exp() * log_rest).scatter(-1, own, 0.0).sum(-1)
    sure = confidence(logits, labels)
    return -torch.sigmoid(-sure) * logsigmoid(sure) - others


def features(logits: Tensor, labels: Tensor, *, by_size: bool) -> Tensor:
    """What an attack model reads: the logits, as they come or from large to small, and the loss; (n, k + 1)."""
    logits = logits.double()
    seen = logits.sort(-1, descending=True).values if by_size else logits
    return torch.cat([seen, -log_probability(logits, labels).unsqueeze(-1)], -1)


def check(exposed: Exposed, *, shadows: bool = False) -> None:
    """Refuse answers that cannot be attacked, and missing shadows where an attack needs them."""
    if exposed.logits.shape[-1] < 2:
        raise NotApplicable("Expected a classifier of at least 2 classes, got one of a single class.")
    if not (exposed.logits.isfinite().all() and exposed.shadow_logits.isfinite().all()):
        raise DataError("Expected finite logits to attack, got some that are not.")
    if shadows and not (exposed.shadow_members.any() and not exposed.shadow_members.all()):
        raise NotApplicable(
            "Expected shadow classifiers that were trained on some of the candidates and not on others, got none.",
            fix="expose the classifier with at least 1 shadow, better 8",
        )


def judged_across_folds(what: Tensor, members: Tensor, learn: Learner, *, folds: int, seed: int) -> Tensor:
    """Each candidate judged by a model of the other folds alone; its own membership is never used.

    Folds are drawn without using memberships (stratified folds would depend on a candidate's own membership), and
    in an order of the features, so that it does not matter how candidates are listed.
    """
    draw = torch.Generator().manual_seed(seed)
    order = _order(what)
    fold = torch.empty_like(order)
    fold[order] = torch.randperm(len(order), generator=draw) % folds
    scores = torch.empty(len(order), dtype=torch.float64)
    for number in range(folds):
        rows = _balanced(order[fold[order] != number], members, draw=torch.Generator().manual_seed(seed))
        scores[fold == number] = learn(what[rows], members[rows])(what[fold == number])
    return scores


def judged_by_shadows(exposed: Exposed, learn: Learner, *, by_size: bool, most: int, seed: int) -> Tensor:
    """Each candidate judged by a model of the shadows' logits for their members and others (Shokri et al. 2017)."""
    labels = exposed.labels.expand(exposed.shadow_members.shape)
    what = features(exposed.shadow_logits, labels, by_size=by_size).flatten(0, 1)
    members = exposed.shadow_members.flatten()
    rows = _balanced(_order(what), members, draw=torch.Generator().manual_seed(seed), most=most)
    return learn(what[rows], members[rows])(features(exposed.logits, exposed.labels, by_size=by_size))


def perceptron(*, hidden: tuple[int, ...], alpha: float, iterations: int, seed: int) -> Learner:
    """A multilayer perceptron on standardised features."""

    def learn(what: Tensor, members: Tensor) -> Judge:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier

        centre, spread = what.mean(0), what.std(0, correction=0).clamp(min=1e-12)
        model = MLPClassifier(hidden, alpha=alpha, max_iter=iterations, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the limit on iterations is intended
            model.fit(_array((what - centre) / spread), _array(members))
        return lambda candidates: torch.from_numpy(model.predict_proba(_array((candidates - centre) / spread))[:, 1])

    return learn


def forest(*, trees: int, leaf: int, seed: int) -> Learner:
    """A random forest whose leaves hold at least so many records."""

    def learn(what: Tensor, members: Tensor) -> Judge:
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(trees, min_samples_leaf=leaf, random_state=seed, n_jobs=1)
        model.fit(_array(what), _array(members))
        return lambda candidates: torch.from_numpy(model.predict_proba(_array(candidates))[:, 1])

    return learn


def _order(what: Tensor) -> Tensor:
    """By loss, then by first logit: the same records in the same order, however they are listed."""
    return torch.from_numpy(np.lexsort((_array(what[:, 0]), _array(what[:, -1]))))


def _balanced(rows: Tensor, members: Tensor, *, draw: torch.Generator, most: int | None = None) -> Tensor:
    """As many rows of members as of others, at most so many in all, in their order."""
    sides = rows[members[rows]], rows[~members[rows]]
    count = min(len(side) for side in sides)
    if most is not None:
        count = min(count, most // 2)
    if not count:
        raise NotApplicable("Expected members and others to learn an attack from, got one kind alone.")
    kept = torch.zeros(len(members), dtype=torch.bool)
    for side in sides:
        kept[side[torch.randperm(len(side), generator=draw)[:count]]] = True
    return rows[kept[rows]]


def _array(values: Tensor) -> NDArray[Any]:
    return values.detach().cpu().numpy()
