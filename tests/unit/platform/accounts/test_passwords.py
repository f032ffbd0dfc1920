"""What a password costs to try, where nothing else is asked for."""

from sandyard.platform.accounts.passwords import Argon2Passwords


async def test_passwords_are_hashed_by_argon2id_at_the_recommended_cost() -> None:
    passwords = Argon2Passwords()
    hashed = await passwords.hash("correct horse battery")
    assert hashed.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    passwords.close()
