"""``aisim-v41 fpm``: measured whole forwards."""
