"builtin.module"() ({

  "coreai.graph"() <{sym_name = "main", function_type = (tensor<2x3xsi32>, tensor<3xsi32>) -> (tensor<2x3xsi32>), param_decls = #param.decl.array<[]😀_b‮>, arg_attrs = [{coreai.name = "x0"}, {coreai.name = "x1"}], res_attrs = [{coreai.name = "y0"}]}> ({
  ^bb0(%x0: tensor<2x3xsi32>, %x1: tensor<3xsi32>):
    %r0 = "coreai.decomposable.broadcasting_bitwise_xor"(%x0, %x1) : (tensor<2x3xsi32>, tensor<3xsi32>) -> tensor<2x3xsi32>
    "coreai.output"(%r0) : (tensor<2x3xsi32>) -> ()
  }) : () -> ()
}) : () -> ()
