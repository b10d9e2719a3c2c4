"""From private images to a verified release, in five steps. Run: python examples/first_release.py OUT"""

import sys

import sfumato

out = sys.argv[1] if len(sys.argv) > 1 else "digits-release"
quick = (("steps", "50"),) if "--quick" in sys.argv else ()
job = sfumato.Job("digits", method="dp-merf", epsilon=1.0, settings=quick)

plan = sfumato.plan_release(job)  # touches no private pixel
print(f"will cost epsilon {plan.epsilon:.3f}, noise multiplier {plan.mechanisms[0].noise_multiplier:.2f}")

folder = sfumato.make_release(job, out)
verdict = sfumato.verify_release(folder)  # what an auditor does
print("verified" if verdict.ok else verdict.text())

for score in sfumato.evaluate_release(folder, "digits", metrics=("nearest",)):  # lab side
    print(f"{score.name}: {score.value:.3f}")

release = sfumato.read_release(folder)
print(f"{len(release.images)} images of shape {tuple(release.images.pixels.shape[1:])}")
