"builtin.module"() ({

  "coreai.graph"() <{sym_name = "main", function_type = (tensor<2xcomplex<f32>>) -> (tensor<2xf32>), param_decls = #param.decl.array<[]>, arg_attrs = [{coreai.name = "x0"}], res_attrs = [{coreai.name = "y0"}]}> ({
  }) : () -> ()
    %r0 = "coreai.real_part"(%x0) : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
    "coreai.output"(%r0) : (tensor<2xf32>) -> ()
  ^bb0(%x0: tensor<2xcomplex<f32>>):
}) : () -> ()
