"""Methods that users would choose instead of ours, behind one contract, and how all of them are compared."""
