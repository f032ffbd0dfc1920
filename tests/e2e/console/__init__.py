"""A package, so that its tests share one server and one browser (fixtures of scope `package`). They
end with the last of them. Its files go to one worker (`tests/conftest.py`)."""
