"""The core broken on purpose, one bug at a time: a named guarantee must notice each."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfumato.privacy import (
    accounting,
    channel,
    journal,
    ledger,
    noise,
    private,
    recall,
    rows,
    selection,
    shards,
    tape,
    teachers,
    vault,
)
from sfumato.privacy.gradients import fast_path, training
from sfumato.report import confined

import guarantees

Patch = Callable[[pytest.MonkeyPatch], None]
BIG = 2.0**noise.LATTICE_BITS


def no_clip(m: pytest.MonkeyPatch) -> None:
    original = rows.bound_rows
    m.setattr(rows, "bound_rows", lambda r, p, b, clip: original(r, p, b, clip=False))


def batch_clip(m: pytest.MonkeyPatch) -> None:
    def clipped_together(r: torch.Tensor, p: torch.Tensor, b: float, clip: bool) -> torch.Tensor:
        r = torch.where(p[:, None], torch.nan_to_num(r, 0, 0, 0), 0.0)
        return (r * (BIG * len(r) / max(float(r.norm()), b))).round()

    m.setattr(rows, "bound_rows", clipped_together)


def clip_to_twice_the_bound(m: pytest.MonkeyPatch) -> None:
    original = rows.bound_rows
    m.setattr(rows, "bound_rows", lambda r, p, b, clip: 2 * original(r, p, b, clip=clip))


def nan_passes(m: pytest.MonkeyPatch) -> None:
    m.setattr(torch, "isfinite", lambda t: torch.ones_like(t, dtype=torch.bool))


def absent_records_count(m: pytest.MonkeyPatch) -> None:
    original = vault.Vault.batch

    def batch(self: vault.Vault, chosen: np.ndarray) -> tuple[torch.Tensor, ...]:
        pixels, labels, present = original(self, chosen)
        return pixels + 10.0 * ~present[:, None, None, None], labels, torch.ones_like(present)

    m.setattr(vault.Vault, "batch", batch)


def votes_count_twice(m: pytest.MonkeyPatch) -> None:
    original = rows.bound_rows
    m.setattr(rows, "bound_rows", lambda r, p, b, clip: original(r, p, b, clip=clip) * (2 if r.shape[1] == 1 else 1))


def scaled_noise(factor: float) -> Patch:
    def patch(m: pytest.MonkeyPatch) -> None:
        original = noise.Noise.lattice_gaussian
        m.setattr(noise.Noise, "lattice_gaussian", lambda self, n, s: original(self, n, s * factor))

    return patch


def uniform_noise(m: pytest.MonkeyPatch) -> None:
    def flat(self: noise.Noise, count: int, scale: float) -> np.ndarray:
        return np.rint((self._uniform(count) - 0.5) * scale * 12**0.5).astype(np.int64)

    m.setattr(noise.Noise, "lattice_gaussian", flat)
    m.setattr(private.GaussianSum, "draws", property(lambda self: 1))


def seeded_noise(m: pytest.MonkeyPatch) -> None:
    m.setattr(noise.Noise, "_key", lambda self: b"\0" * 32)


def one_stream_for_each(m: pytest.MonkeyPatch, by: Callable[[], object]) -> None:
    """One key for many draws, kept until `by` changes."""
    original, kept = noise.Noise._key, {}

    def bits(self: noise.Noise, count: int) -> np.ndarray:
        key = (id(self), by())
        if key not in kept:
            kept[key] = noise._stream(original(self))
        return np.frombuffer(kept[key].update(bytes(8 * count)), dtype="<u8")

    m.setattr(noise.Noise, "_bits", bits)


def forked_noise(m: pytest.MonkeyPatch) -> None:
    one_stream_for_each(m, by=lambda: None)


def noise_of_a_process_number(m: pytest.MonkeyPatch) -> None:
    one_stream_for_each(m, by=lambda: os.getpid())


def sampling_from_a_seed(m: pytest.MonkeyPatch) -> None:
    """By the law all is well, as in the DP-SGD of public code; but whoever knows the seed knows the samples."""
    draw = np.random.default_rng(0)
    m.setattr(noise.Noise, "included", lambda self, count, rate: draw.random(count) < rate)


def every_odd_round_repeats_the_noise_before(m: pytest.MonkeyPatch) -> None:
    original, last = private.Query._answer, {}

    def answer(self: private.Query, vault: object, rows: object, number: int, before: object) -> object:
        draw = vault.noise.lattice_gaussian

        def again(count: int, scale: float) -> np.ndarray:
            odd = number % 2 == 1 and self.mechanism.sampling < 1
            last[id(self)] = last[id(self)] if odd else draw(count, scale)
            return last[id(self)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vault.noise, "lattice_gaussian", again)
            return original(self, vault, rows, number, before)

    m.setattr(private.Query, "_answer", answer)


def every_charge_has_the_same_noise(m: pytest.MonkeyPatch) -> None:
    original = private.Query._answer
    m.setattr(
        private.Query,
        "_answer",
        lambda self, v, rows, number, before: original(self, with_noise_of(v, number), rows, number, before),
    )


def with_noise_of(of: vault.Vault, number: int) -> vault.Vault:
    of.noise = noise.SeededNoise(number)
    return of


def poisson_mask_drawn_twice(m: pytest.MonkeyPatch) -> None:
    """In where either of two masks says so: nearly twice the rate, by a sampler that is right."""
    original = private.Query._answer

    def answer(self: private.Query, vault: object, rows: object, number: int, before: object) -> object:
        draw = vault.noise.included
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vault.noise, "included", lambda n, rate: draw(n, rate) | draw(n, rate))
            return original(self, vault, rows, number, before)

    m.setattr(private.Query, "_answer", answer)


def a_sample_is_summed_twice(m: pytest.MonkeyPatch) -> None:
    original = vault.Vault.total
    m.setattr(vault.Vault, "total", lambda self, *asked, **how: 2 * original(self, *asked, **how))


def rounded_up(m: pytest.MonkeyPatch) -> None:
    m.setattr(torch.Tensor, "round_", torch.Tensor.ceil_)


def float32_norms(m: pytest.MonkeyPatch) -> None:
    m.setattr(rows, "row_norms", lambda r: torch.linalg.vector_norm(r, dim=1).double())


def any_bound_allowed(m: pytest.MonkeyPatch) -> None:
    for module in (rows, teachers):
        m.setattr(module, "check_bound", lambda bound: None)


def noise_of_any_size(m: pytest.MonkeyPatch) -> None:
    m.setattr(noise, "_FARTHEST", 0)


def absent_features_count(m: pytest.MonkeyPatch) -> None:
    original = vault.DerivedVault.batch

    def batch(self: vault.DerivedVault, chosen: np.ndarray) -> tuple[torch.Tensor, ...]:
        features, labels, present = original(self, chosen)
        return features, labels, torch.ones_like(present)

    m.setattr(vault.DerivedVault, "batch", batch)


def the_working_copy_has_a_name(m: pytest.MonkeyPatch) -> None:
    m.setattr(vault, "_nameless", lambda path: path.open("w+b", buffering=0))


def off_the_lattice(m: pytest.MonkeyPatch) -> None:
    m.setattr(private, "LATTICE_BITS", 20.3)


def shuffled_batches(m: pytest.MonkeyPatch) -> None:
    def fixed_size(self: noise.Noise, count: int, rate: float) -> np.ndarray:
        mask = np.zeros(count, bool)
        mask[self.permutation(count)[: round(count * rate)]] = True
        return mask

    m.setattr(noise.Noise, "included", fixed_size)


def higher_rate(m: pytest.MonkeyPatch) -> None:
    original = noise.Noise.included
    m.setattr(noise.Noise, "included", lambda self, n, rate: original(self, n, min(1.0, rate * 1.05)))


def correlated_sampling(m: pytest.MonkeyPatch) -> None:
    original = noise.Noise.included
    m.setattr(noise.Noise, "included", lambda self, n, rate: np.repeat(original(self, n // 2, rate), 2))


def empty_batch_resampled(m: pytest.MonkeyPatch) -> None:
    original = noise.Noise.included

    def never_empty(self: noise.Noise, count: int, rate: float) -> np.ndarray:
        drawn = original(self, count, rate)
        drawn[0] |= not drawn.any()
        return drawn

    m.setattr(noise.Noise, "included", never_empty)


def free_charges(m: pytest.MonkeyPatch) -> None:
    m.setattr(ledger.Ledger, "_refuse_beyond_budget", lambda self, mechanisms: None)


def rounds_for_free(m: pytest.MonkeyPatch) -> None:
    m.setattr(ledger.Ledger, "begin", lambda self, charge, draws: None)


def begin_after_noise(m: pytest.MonkeyPatch) -> None:
    m.setattr(private.Query, "_begin", lambda self: None)


def charge_in_memory_only(m: pytest.MonkeyPatch) -> None:
    m.setattr(journal.Journal, "append", lambda self, record: None)


def marks_not_written(m: pytest.MonkeyPatch) -> None:
    original = journal.Journal.append
    m.setattr(journal.Journal, "append", lambda self, r: None if r["record"] == "begin" else original(self, r))


def chain_not_checked(m: pytest.MonkeyPatch) -> None:
    def follow(self: journal.Journal, line: bytes) -> dict:
        try:
            return {k: v for k, v in json.loads(line.split(b" ", 1)[1]).items() if k != "previous"}
        except ValueError as error:
            raise self.damaged("not JSON") from error

    m.setattr(journal.Journal, "_checked", follow)


def torn_record_forgotten(m: pytest.MonkeyPatch) -> None:
    original = journal.Journal.read
    m.setattr(journal.Journal, "read", lambda self: (original(self)[0], False))


def close_does_nothing(m: pytest.MonkeyPatch) -> None:
    m.setattr(vault.Vault, "close", lambda self: None)


def handle_has_items(m: pytest.MonkeyPatch) -> None:
    m.setattr(private.PrivateImages, "__getitem__", lambda self, i: private.unlock(self).pixels[i])


def handle_pickles(m: pytest.MonkeyPatch) -> None:
    m.setattr(private.PrivateImages, "__reduce_ex__", lambda self, protocol: (int, ()))


def whole_batches_mapped(m: pytest.MonkeyPatch) -> None:
    m.setattr(torch.func, "vmap", lambda f, **_: f)


def multiplicity_clipped_apart(m: pytest.MonkeyPatch) -> None:
    original = rows.bound_rows  # eight copies, each with a bound of its own, as in DP-LoRA
    m.setattr(rows, "bound_rows", lambda r, p, b, clip: 8 * original(r, p, b, clip=clip))


def multiplicity_clipped_apart_in_the_fast_path(m: pytest.MonkeyPatch) -> None:
    original = fast_path.FastPathRows._scales
    m.setattr(fast_path.FastPathRows, "_scales", lambda *given, clip: 8 * original(*given, clip=clip))


def one_teacher_for_a_batch(m: pytest.MonkeyPatch) -> None:
    m.setattr(noise.Noise, "drawn_shards", lambda self, n, k: np.zeros(n, np.int64))


def unbounded_terms(m: pytest.MonkeyPatch) -> None:
    original = teachers._bounded
    m.setattr(teachers, "_bounded", lambda vectors, l2_bound, clip: original(vectors, l2_bound, False))


def every_teacher_counts_twice(m: pytest.MonkeyPatch) -> None:
    original = teachers.Teachers._sums
    m.setattr(teachers.Teachers, "_sums", lambda self, *asked: 2 * original(self, *asked))


def an_answer_for_many(m: pytest.MonkeyPatch) -> None:
    """A batch of answers is marked as one, as if a record could move one of them only."""
    original = ledger.Ledger.begin
    m.setattr(ledger.Ledger, "begin", lambda self, charge, draws: original(self, charge, 1))


def overlapping_shards(m: pytest.MonkeyPatch) -> None:
    m.setattr(teachers, "_deal", lambda order, k: torch.from_numpy(np.tile(order, (k, 1))))


class Stubborn(torch.Tensor):
    """A tensor that cannot be blanked."""

    def __setitem__(self, where: object, value: object) -> None:
        pass


def empty_places_borrow_pixels(m: pytest.MonkeyPatch) -> None:
    original = vault.Vault.batch

    def batch(self: vault.Vault, chosen: np.ndarray) -> tuple[torch.Tensor, ...]:
        pixels, labels, present = original(self, chosen)
        return pixels.as_subclass(Stubborn), labels, present

    m.setattr(vault.Vault, "batch", batch)


def empty_places_borrow_labels(m: pytest.MonkeyPatch) -> None:
    original = vault.Vault.batch

    def batch(self: vault.Vault, chosen: np.ndarray) -> tuple[torch.Tensor, ...]:
        pixels, labels, present = original(self, chosen)
        return pixels, labels.as_subclass(Stubborn), present

    m.setattr(vault.Vault, "batch", batch)


def teachers_unclipped(m: pytest.MonkeyPatch) -> None:
    original = teachers.bound_rows
    m.setattr(teachers, "bound_rows", lambda r, p, b, clip: original(r, p, b, clip=False))


def scores_unbounded(m: pytest.MonkeyPatch) -> None:
    m.setattr(selection, "_unit_scores", lambda s, p: torch.where(p[:, None], s, 0.0) * BIG)


def scores_from_minus_one_to_one(m: pytest.MonkeyPatch) -> None:
    def unit(scores: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        counts = present & torch.isfinite(scores).all(1)
        return torch.where(counts[:, None], scores.clamp(-1, 1), 0.0).mul(BIG).round()

    m.setattr(selection, "_unit_scores", unit)


def best_without_noise(m: pytest.MonkeyPatch) -> None:
    m.setattr(noise.Noise, "gumbel", lambda self, count: np.zeros(count))


def half_epsilon(m: pytest.MonkeyPatch) -> None:
    original = accounting.epsilon_pld
    m.setattr(accounting, "epsilon_pld", lambda mechanisms, delta: original(mechanisms, delta) / 2)


def gaussian_rounds_not_composed(m: pytest.MonkeyPatch) -> None:
    original = accounting._compose
    once = lambda mechanisms: tuple(type(x)(noise_multiplier=x.noise_multiplier) for x in mechanisms)  # noqa: E731
    m.setattr(accounting, "_compose", lambda mechanisms, grid: original(once(mechanisms), grid))


def spending_forgotten_when_calibrating(m: pytest.MonkeyPatch) -> None:
    original = accounting.calibrate
    m.setattr(accounting, "calibrate", lambda ms, *, epsilon, delta, spent: original(ms, epsilon=epsilon, delta=delta))


def calibrated_by_renyi_divergence(m: pytest.MonkeyPatch) -> None:
    """One accountant for the noise and another for the claim: a part of the budget is never used."""
    m.setattr(accounting, "epsilon_pld", accounting.epsilon_rdp)


def spending_is_subtracted_from_epsilon(m: pytest.MonkeyPatch) -> None:
    """As if epsilons added up: what an earlier question cost is taken off by itself, not composed with the rest."""
    original = accounting.calibrate

    def apart(mechanisms: Any, *, epsilon: float, delta: float, spent: Any = ()) -> Any:
        return original(mechanisms, epsilon=epsilon - accounting.epsilon_pld(spent, delta), delta=delta)

    m.setattr(accounting, "calibrate", apart)


def features_of_a_batch(m: pytest.MonkeyPatch) -> None:
    original = vault.DerivedVault.__init__

    def centred_by_the_batch(self: vault.DerivedVault, *arguments: object) -> None:
        original(self, *arguments)
        alone = self._map
        self._map = lambda batch: alone(batch - batch.mean(0))

    m.setattr(vault.DerivedVault, "__init__", centred_by_the_batch)


def features_stay(m: pytest.MonkeyPatch) -> None:
    original = vault.Records.close
    m.setattr(vault.Records, "close", lambda self: None if self._kind == np.float16 else original(self))


def exact_sum_on_tape(m: pytest.MonkeyPatch) -> None:
    original = tape.Tape.settle

    def settle(
        self: tape.Tape, charge: int, number: int, answer: tape.Answer, *, exact: np.ndarray, reach: float
    ) -> tape.Answer:
        original(
            self, charge, number, tape.Answer(exact.ravel() * answer.draws, answer.draws), exact=exact, reach=reach
        )
        return answer

    m.setattr(tape.Tape, "settle", settle)


def rollback_unnoticed(m: pytest.MonkeyPatch) -> None:
    m.setattr(tape.Tape, "draws", lambda self, charge: 0)


def a_checkpoint_forgets_draws(m: pytest.MonkeyPatch) -> None:
    original = tape.Tape.keep

    def keep(self: tape.Tape, charge: int, rounds: int, state: dict) -> None:
        for key in list(self._draws):
            self._draws[key] = 0
        original(self, charge, rounds, state)

    m.setattr(tape.Tape, "keep", keep)
    m.setattr(tape.Checkpoint, "draws", property(lambda self: 0))


def a_checkpoint_grants_its_rounds_again(m: pytest.MonkeyPatch) -> None:
    m.setattr(ledger.Ledger, "begin", lambda self, charge, draws: None)


def answers_stay_behind_a_checkpoint(m: pytest.MonkeyPatch) -> None:
    m.setattr(tape.Tape, "_drop_replaced", lambda self, charge: None)


def answers_not_recalled(m: pytest.MonkeyPatch) -> None:
    m.setattr(tape.Tape, "recall", lambda self, charge, number: None)


def any_delta_allowed(m: pytest.MonkeyPatch) -> None:
    m.setattr(ledger.Budget, "of", classmethod(lambda cls, epsilon, *, count, delta=None: cls(epsilon, delta or 1e-5)))


def recalled_ledger_goes_on(m: pytest.MonkeyPatch) -> None:
    m.delattr(recall.FinishedLedger, "charge")
    m.delattr(recall.FinishedLedger, "_append")


def recalled_handle_makes_answers_up(m: pytest.MonkeyPatch) -> None:
    m.setattr(recall, "_NoNoise", noise.Noise)
    blank = lambda self, chosen: (  # noqa: E731
        torch.zeros(len(chosen), *self.spec.shape),
        torch.zeros(len(chosen), dtype=torch.int64),
        torch.zeros(len(chosen), dtype=torch.bool),
    )
    m.setattr(recall.RecalledVault, "batch", blank)
    m.setattr(recall.FinishedLedger, "begin", lambda self, charge, draws: None)


def reading_a_ledger_mends_it(m: pytest.MonkeyPatch) -> None:
    original = journal.Journal.__init__
    m.setattr(journal.Journal, "__init__", lambda self, path, read_only=False: original(self, path))
    m.delattr(recall.FinishedLedger, "_append")


def lost_choice_falls_to_the_first(m: pytest.MonkeyPatch) -> None:
    m.setattr(recall.RecalledVault, "empty", False)


def a_step_beside_the_answers(m: pytest.MonkeyPatch) -> None:
    original = training.noisy_gradient

    def leaky(
        query: private.Query, model: torch.nn.Module, loss: Callable[..., torch.Tensor], **settings: float
    ) -> None:
        original(query, model, loss, **settings)
        for weight in model.parameters():
            weight.grad += float(private.unlock(query).present.mean())

    m.setattr(training, "noisy_gradient", leaky)


def fewer_steps_than_rounds(m: pytest.MonkeyPatch) -> None:
    m.setattr(private.Query, "rounds", property(lambda self: self.mechanism.rounds - 1))


def no_walls(m: pytest.MonkeyPatch) -> None:
    m.setattr(confined.sys, "addaudithook", lambda hook: None)


def links_lead_out(m: pytest.MonkeyPatch) -> None:
    m.setattr(confined, "_real", lambda path: str(Path(os.fsdecode(path)).absolute()))


def the_lab_begins_like_the_release(m: pytest.MonkeyPatch) -> None:
    m.setattr(confined._Permissions, "inside", lambda self, real: real.startswith(self.readable))


def writing_counts_as_reading(m: pytest.MonkeyPatch) -> None:
    m.setattr(confined, "WRITING", 0)


def everything_may_be_moved(m: pytest.MonkeyPatch) -> None:
    m.setattr(confined, "CLOSED", confined.CLOSED - {"os"})
    m.setattr(confined, "MOVING", ())


def open_to(room: str) -> Patch:
    def patch(m: pytest.MonkeyPatch) -> None:
        m.setattr(confined, "CLOSED", confined.CLOSED - {room})

    return patch


def noise_from_every_shard(m: pytest.MonkeyPatch) -> None:
    original = shards.streamed

    def noisy(source: object, question: shards.Question, included: np.ndarray) -> np.ndarray:
        exact = original(source, question, included)
        return exact + noise.Noise().lattice_gaussian(exact.size, BIG)

    m.setattr(shards, "streamed", noisy)


def shards_overlap(m: pytest.MonkeyPatch) -> None:
    original = shards.streamed
    m.setattr(shards, "streamed", lambda *asked: 2 * original(*asked))


def shards_sample_on_their_own(m: pytest.MonkeyPatch) -> None:
    original = shards.streamed
    m.setattr(shards, "streamed", lambda source, question, included: original(source, question, included[::-1].copy()))


def messages_are_not_counted(m: pytest.MonkeyPatch) -> None:
    m.setattr(channel, "_place", lambda number: bytes(12))


def messages_are_sent_in_the_clear(m: pytest.MonkeyPatch) -> None:
    class Clear:
        def __init__(self, key: bytes) -> None:
            pass

        def encrypt(self, nonce: bytes, message: bytes, data: None) -> bytes:
            return message + bytes(channel.TAG)

        def decrypt(self, nonce: bytes, sealed: bytes, data: None) -> bytes:
            return sealed[: -channel.TAG]

    m.setattr(channel, "AESGCM", Clear)


def keys_without(forgotten: str) -> Patch:
    def patch(m: pytest.MonkeyPatch) -> None:
        original = channel.Channel.__init__

        def forgetful(self: channel.Channel, secret: bytes, first: bytes, second: bytes, **about: int) -> None:
            known: dict[str, Any] = {"secret": secret, "driver_nonce": first, "worker_nonce": second, **about}
            known[forgotten] = bytes(channel.NONCE) if isinstance(known[forgotten], bytes) else 1
            original(self, **known)

        m.setattr(channel.Channel, "__init__", forgetful)

    patch.__qualname__ = f"keys_without_{forgotten}"
    return patch


def keys_are_the_same_both_ways(m: pytest.MonkeyPatch) -> None:
    original = channel.HKDF

    class Doubled:
        def __init__(self, *args: Any, **settings: Any) -> None:
            self._keys = original(*args, **settings)

        def derive(self, secret: bytes) -> bytes:
            return 2 * self._keys.derive(secret)[:32]

    m.setattr(channel, "HKDF", Doubled)


SEALED = "a_message_is_accepted_only_from_the_other_end_in_this_order_and_meeting"
MUTANTS: list[tuple[Patch, str]] = [
    (messages_are_not_counted, SEALED),
    (messages_are_sent_in_the_clear, SEALED),
    (keys_are_the_same_both_ways, SEALED),
    *((keys_without(what), SEALED) for what in ("secret", "driver_nonce", "worker_nonce", "rank", "ranks")),
    (a_step_beside_the_answers, "a_model_changes_by_noisy_gradients_alone_and_only_while_rounds_are_left"),
    (fewer_steps_than_rounds, "a_model_changes_by_noisy_gradients_alone_and_only_while_rounds_are_left"),
    (no_clip, "one_record_changes_a_sum_by_at_most_its_bound"),
    (batch_clip, "one_record_changes_a_sum_by_at_most_its_bound"),
    (clip_to_twice_the_bound, "one_record_changes_a_sum_by_at_most_its_bound"),
    (nan_passes, "one_record_changes_a_sum_by_at_most_its_bound"),
    (absent_records_count, "one_record_changes_a_sum_by_at_most_its_bound"),
    (votes_count_twice, "one_record_changes_one_bin_of_a_histogram_by_one"),
    (scaled_noise(0.0), "the_noise_has_the_declared_size"),
    (scaled_noise(0.5), "the_noise_has_the_declared_size"),
    (scaled_noise(0.9), "the_noise_has_the_declared_size"),
    (scaled_noise(0.95), "the_noise_has_the_declared_size"),
    (uniform_noise, "the_noise_has_the_declared_size"),
    (rounded_up, "a_row_of_millions_of_values_is_within_its_bound"),
    (float32_norms, "a_row_of_millions_of_values_is_within_its_bound"),
    (any_bound_allowed, "bounds_and_noise_beyond_float_precision_are_refused"),
    (noise_of_any_size, "bounds_and_noise_beyond_float_precision_are_refused"),
    (absent_features_count, "one_record_changes_a_sum_of_features_by_at_most_its_bound"),
    (every_odd_round_repeats_the_noise_before, "noise_is_independent_between_rounds_and_between_charges"),
    (every_charge_has_the_same_noise, "noise_is_independent_between_rounds_and_between_charges"),
    (poisson_mask_drawn_twice, "a_query_samples_each_record_once_at_the_declared_rate"),
    (a_sample_is_summed_twice, "a_query_samples_each_record_once_at_the_declared_rate"),
    (the_working_copy_has_a_name, "a_killed_process_leaves_no_pixels_on_disk"),
    (the_working_copy_has_a_name, "a_closed_handle_answers_nothing_and_holds_no_records"),
    (seeded_noise, "noise_is_fresh_in_every_process_and_after_a_fork"),
    (sampling_from_a_seed, "noise_is_fresh_in_every_process_and_after_a_fork"),
    (forked_noise, "noise_is_fresh_in_every_process_and_after_a_fork"),
    (noise_of_a_process_number, "noise_is_fresh_in_every_process_and_after_a_fork"),
    (noise_from_every_shard, "a_sum_over_shards_equals_the_sum_in_one_place_with_noise_added_once"),
    (shards_overlap, "a_sum_over_shards_equals_the_sum_in_one_place_with_noise_added_once"),
    (shards_sample_on_their_own, "a_sum_over_shards_equals_the_sum_in_one_place_with_noise_added_once"),
    (off_the_lattice, "answers_lie_on_the_lattice"),
    (shuffled_batches, "records_are_sampled_independently_at_the_declared_rate"),
    (higher_rate, "records_are_sampled_independently_at_the_declared_rate"),
    (correlated_sampling, "records_are_sampled_independently_at_the_declared_rate"),
    (empty_batch_resampled, "an_empty_sample_is_pure_noise"),
    (free_charges, "a_question_beyond_the_budget_is_refused_before_anything_is_written"),
    (rounds_for_free, "a_ledger_keeps_every_charge_when_its_process_ends"),
    (begin_after_noise, "a_question_is_charged_before_data_is_read"),
    (charge_in_memory_only, "a_ledger_keeps_every_charge_when_its_process_ends"),
    (marks_not_written, "a_ledger_keeps_every_charge_when_its_process_ends"),
    (chain_not_checked, "a_damaged_ledger_is_refused"),
    (torn_record_forgotten, "a_torn_record_counts_as_begun"),
    (close_does_nothing, "a_closed_handle_answers_nothing_and_holds_no_records"),
    (handle_has_items, "a_handle_has_no_access_to_records"),
    (handle_pickles, "a_handle_has_no_access_to_records"),
    (whole_batches_mapped, "a_contribution_sees_one_image_and_cannot_keep_it"),
    (
        multiplicity_clipped_apart_in_the_fast_path,
        "a_gradient_is_bounded_after_averaging_over_its_multiplicity",
    ),
    (multiplicity_clipped_apart, "a_gradient_is_bounded_after_averaging_over_its_multiplicity"),
    (one_teacher_for_a_batch, "an_answer_comes_from_one_independently_drawn_shard"),
    (unbounded_terms, "a_record_moves_one_term_of_a_sum_over_teachers"),
    (every_teacher_counts_twice, "a_record_moves_one_term_of_a_sum_over_teachers"),
    (an_answer_for_many, "a_record_moves_one_term_of_a_sum_over_teachers"),
    (an_answer_for_many, "an_answer_comes_from_one_independently_drawn_shard"),
    (overlapping_shards, "an_answer_comes_from_one_independently_drawn_shard"),
    (empty_places_borrow_pixels, "an_answer_comes_from_one_independently_drawn_shard"),
    (empty_places_borrow_labels, "an_answer_comes_from_one_independently_drawn_shard"),
    (teachers_unclipped, "an_answer_comes_from_one_independently_drawn_shard"),
    (rounds_for_free, "an_answer_comes_from_one_independently_drawn_shard"),
    (scores_unbounded, "a_noisy_choice_has_the_declared_distribution"),
    (scores_unbounded, "a_record_adds_from_zero_to_one_to_every_score"),
    (scores_from_minus_one_to_one, "a_record_adds_from_zero_to_one_to_every_score"),
    (best_without_noise, "a_noisy_choice_has_the_declared_distribution"),
    (half_epsilon, "epsilon_is_never_below_the_closed_form"),
    (gaussian_rounds_not_composed, "epsilon_is_never_below_the_closed_form"),
    (spending_forgotten_when_calibrating, "a_calibrated_plan_stays_within_the_budget"),
    (calibrated_by_renyi_divergence, "a_calibrated_plan_stays_within_the_budget"),
    (spending_is_subtracted_from_epsilon, "a_calibrated_plan_stays_within_the_budget"),
    (features_of_a_batch, "a_feature_depends_on_its_own_image_alone"),
    (features_stay, "a_closed_handle_answers_nothing_and_holds_no_records"),
    (exact_sum_on_tape, "the_tape_holds_no_exact_sums"),
    (rollback_unnoticed, "a_rolled_back_ledger_is_refused"),
    (a_checkpoint_forgets_draws, "a_checkpoint_counts_the_draws_of_the_answers_that_it_replaces"),
    (a_checkpoint_grants_its_rounds_again, "a_checkpoint_counts_the_draws_of_the_answers_that_it_replaces"),
    (answers_stay_behind_a_checkpoint, "a_checkpoint_counts_the_draws_of_the_answers_that_it_replaces"),
    (rollback_unnoticed, "a_checkpoint_counts_the_draws_of_the_answers_that_it_replaces"),
    (answers_not_recalled, "a_resumed_query_repeats_its_answers_and_counts_what_was_lost"),
    (any_delta_allowed, "invalid_mechanisms_and_budgets_are_refused"),
    (recalled_ledger_goes_on, "recalled_answers_are_the_recorded_ones_alone"),
    (recalled_handle_makes_answers_up, "an_answer_that_was_not_recorded_is_refused"),
    (lost_choice_falls_to_the_first, "an_answer_that_was_not_recorded_is_refused"),
    (reading_a_ledger_mends_it, "an_unfinished_ledger_is_recognised_and_a_torn_one_refused_unchanged"),
    (no_walls, "a_public_page_is_built_from_its_release_alone"),
    (links_lead_out, "a_public_page_is_built_from_its_release_alone"),
    (the_lab_begins_like_the_release, "a_public_page_is_built_from_its_release_alone"),
    (writing_counts_as_reading, "a_public_page_is_built_from_its_release_alone"),
    (everything_may_be_moved, "a_public_page_is_built_from_its_release_alone"),
    (open_to("ctypes"), "a_public_page_is_built_from_its_release_alone"),
    (open_to("os"), "a_public_page_is_built_from_its_release_alone"),
    (open_to("socket"), "a_public_page_is_built_from_its_release_alone"),
    (open_to("subprocess"), "a_public_page_is_built_from_its_release_alone"),
]


@pytest.mark.parametrize(("patch", "guard"), MUTANTS, ids=[f"{p.__qualname__}-{g}" for p, g in MUTANTS])
def test_the_guard_notices(patch: Patch, guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What was calibrated with the bug must not be remembered afterwards, nor what was calibrated before it.
    forgetful = functools.lru_cache(accounting._calibrated.__wrapped__)
    monkeypatch.setattr(accounting, "_calibrated", forgetful)
    patch(monkeypatch)
    try:
        guarantees.CHECKS[guard]()
    except (AssertionError, pytest.fail.Exception):
        return
    pytest.fail(f"{guard} did not notice {patch.__qualname__}")
