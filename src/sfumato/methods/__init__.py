"""One file, one paper: public hyperparameters, fit, sampler."""
