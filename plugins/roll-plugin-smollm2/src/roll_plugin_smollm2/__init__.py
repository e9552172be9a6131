"""SmolLM2-135M-Instruct as a ROLL model name."""
