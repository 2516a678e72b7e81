"""The compiled walker. Its modules are there where a C compiler was; `twins` looks for them."""
