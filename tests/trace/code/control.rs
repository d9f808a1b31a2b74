pub fn forward(x: &TracedTensor) -> Result<(TracedTensor, TracedTensor, TracedTensor, TracedTensor)> {
    let x_0 = x.dim(0);
    let x_1 = x.dim(1);
    let sum = x.sum();
    let gt = sum.gt(0.0);
    let if_1 = cond(
        &gt,
        || {
            let mul = x.mul(2.0);
            mul
        },
        || {
            let sub = x.sub(1.0);
            let relu = sub.relu();
            relu
        },
    )?;
    let abs = if_1.abs();
    let tensor = ops::tensor(0);
    let amax = abs.amax();
    let gt_1 = amax.gt(0.1);
    let (_, _, (loop_1, loop_1_1)) = while_loop(
        (ops::tensor(0), gt_1.clone(), (abs.clone(), tensor.clone())),
        |(_, again, _)| again.clone(),
        |(round, _, (carried, carried_1))| {
            let div = carried.div(2.0);
            let add = carried_1.add(1);
            let amax_1 = div.amax();
            let gt_2 = amax_1.gt(0.1);
            (round.add(1), gt_2, (div, add))
        },
    )?;
    let zeros = ops::zeros([&x_1]);
    let zeros_1 = ops::zeros_with([&x_0, &x_1], kw!(dtype = DType::F32));
    let ones = ops::ones_with(Arg::List(Vec::new()), kw!(dtype = DType::Bool));
    let (_, _, (loop_2, loop_3)) = while_loop(
        (ops::tensor(0), ones.clone(), (zeros.clone(), zeros_1.clone())),
        |(round_1, again_1, _)| again_1.logical_and(&round_1.lt(&x_0)),
        |(round_1, _, (carried_2, stack))| {
            let index = x.index([&round_1]);
            let add_1 = carried_2.add(&index);
            let index_put = stack.index_put([&round_1], &add_1);
            let ones_1 = ops::ones_with(Arg::List(Vec::new()), kw!(dtype = DType::Bool));
            (round_1.add(1), ones_1, (add_1, index_put))
        },
    )?;
    Ok((loop_1, loop_1_1, loop_2, loop_3))
}
