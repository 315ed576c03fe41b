"""Fixtures of the exports."""

from tiny_models import in_onnx, make, model_file  # noqa: F401 - fixtures
