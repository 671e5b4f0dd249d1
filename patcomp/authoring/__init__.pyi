from patcomp.authoring.aten import Aten as Aten
from patcomp.authoring.aten_source import AtenSource as AtenSource
from patcomp.authoring.aten_target import AtenTarget as AtenTarget
from patcomp.authoring.composites import Composites as Composites
from patcomp.authoring.coreai import Coreai as Coreai
from patcomp.authoring.coreai_source import CoreaiSource as CoreaiSource
from patcomp.authoring.coreai_target import CoreaiTarget as CoreaiTarget
from patcomp.patterns.op_view import OpView as OpView
from patcomp.patterns.targets import TargetNamespace

Targets = TargetNamespace

aten: Aten
coreai: Coreai
