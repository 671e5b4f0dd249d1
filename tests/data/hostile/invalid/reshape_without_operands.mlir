"builtin.module"() ({

  "coreai.graph"() <{sym_name = "main", function_type = (tensor<2x3xf32>) -> (tensor<3x2xf32>), param_decls = #param.decl.array<[]>, arg_attrs = [{coreai.name = "x0"}], res_attrs = [{coreai.name = "y0"}]}> ({
  ^bb0(%x0: tensor<2x3xf32>):
    %s = "coreai.reshape"() <{value = dense<[3,2]> : tensor<2xui32>}> : () -> tensor<2xui32>
    %r0 = "coreai.reshape"(%x0, %s) : (tensor<2x3xf32>, tensor<2xui32>) -> tensor<3x2xf32>
    "coreai.output"(%r0) : (tensor<3x2xf32>) -> ()
  }) : () -> ()
}) : () -> ()
