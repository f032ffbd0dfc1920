"""What every part shares and no part owns; it knows none of them."""
