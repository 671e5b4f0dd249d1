"""Rules on exported programs: import, rewrite, and back to torch.fx. Nothing of Core AI is involved."""

from patcomp.exported_programs.rewriting import rewrite, why_not_rewritten

__all__ = ["rewrite", "why_not_rewritten"]
