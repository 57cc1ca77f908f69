"""FPM: whole measured forwards, for exactly what was measured (docs/fpm.md)."""
