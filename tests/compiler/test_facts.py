"""Facts about the world: compiled code notices each change that eager code notices.

Names in `KNOWN_STALE` end in `` inlined`` where only code inlined from another module is stale.
"""

from __future__ import annotations

import fact_runner
import pytest
from fact_runner import DIRECT, INLINED
from facts import FACTS

import tc

#: facts whose change compiled code does not notice today, or that crash
KNOWN_STALE: frozenset[str] = frozenset((
    "identity.is",
    "identity.is_not",
    "identity.any_is",
    "identity.object_is",
    "identity.object_equal_by_default",
    "identity.object_in_list",
    "identity.attribute_is_input",
    "identity.attributes_coincide",
    "identity.item_is_input",
    "identity.tuple_items_coincide",
    "identity.lists_coincide_and_are_written",
    "identity.dicts_coincide_and_are_written",
    "identity.sets_coincide_and_are_written",
    "identity.deques_coincide_and_are_written",
    "identity.lists_read_after_alias_is_written",
    "identity.list_items_coincide",
    "identity.dict_values_coincide",
    "identity.objects_coincide_and_are_written",
    "identity.objects_with_slots_coincide",
    "identity.attribute_lists_coincide",
    "identity.global_list_is_argument",
    "identity.closure_is_argument",
    "identity.cells_of_two_callees_coincide",
    "identity.instance_dict_is_argument",
    "identity.weights_tied",
    "identity.weights_untied inlined",
    "identity.modules_coincide",
    "identity.sentinel",
    "identity.method_of_the_same_object",
    "identity.iterator_twice",
    "identity.keyword_values_coincide",
    "identity.gradient_is_argument",
    "identity.class_held_by_object inlined",
    "identity.object_held_twice_comes_apart inlined",
    "identity.three_inputs_two_coincide",
    "identity.list_in_list_of_itself",
    "tensors.storage_offset_zero",
    "tensors.is_view",
    "tensors.is_no_longer_view",
    "tensors.base_is_global",
    "tensors.output_nr",
    "tensors.is_leaf",
    "tensors.retains_grad",
    "tensors.is_shared",
    "tensors.is_set_to",
    "tensors.as_strided_read_offset",
    "tensors.storage_offset_times",
    "values.not_implemented",
    "values.string_subclass",
    "containers.ordered_moved",
    "containers.global_ordered_moved",
    "containers.global_default_dict_factory inlined",
    "containers.global_default_dict_factory_type inlined",
    "containers.frozen_data_class_hash",
    "containers.global_frozen_data_class_hash",
    "containers.ordered_moved_in_place",
    "containers.default_dict_factory_set inlined",
    "classes.get_attribute_default",
    "classes.get_attribute_default_getattr",
    "classes.absent_raises",
    "classes.descriptor_get_replaced",
    "classes.getattr_replaced",
    "classes.getattr_shadowed_by_class",
    "classes.setattr_added",
    "classes.type_name",
    "classes.type_qualname",
    "classes.bases_changed_isinstance",
    "classes.mro_length",
    "classes.super_of_changed_bases",
    "classes.super_method_replaced",
    "classes.abc_registered",
    "classes.abc_registered_subclass",
    "classes.instance_check",
    "classes.instance_check_state",
    "classes.protocol",
    "classes.metaclass_attribute_absent",
    "classes.new_replaced",
    "classes.init_added",
    "classes.global_class_replaced inlined",
    "classes.has_class_attribute",
    "classes.doc",
    "classes.subclasses",
    "classes.method_str_replaced",
    "classes.method_repr_replaced",
    "classes.method_eq_added",
    "classes.method_bool_added",
    "classes.method_len_added",
    "classes.method_contains_added",
    "classes.method_call_added",
    "classes.reflected_wins_for_subclass",
    "classes.enum_member_attribute",
    "classes.match_args",
    "classes.init_subclass",
    "callables.code_replaced",
    "callables.global_replaced inlined",
    "callables.function_attribute_absent",
    "callables.wrapped_attribute inlined",
    "callables.wrapper_calls_wrapped inlined",
    "callables.lambda_in_dict inlined",
    "callables.lambda_in_list inlined",
    "callables.function_in_attribute inlined",
    "callables.code_of_function_in_attribute",
    "callables.method_code_replaced",
    "callables.method_of_instance_removed inlined",
    "callables.partial_function inlined",
    "callables.lru_cache_replaced inlined",
    "callables.exec_made_builtins",
    "callables.generator_code",
    "callables.callee_of_callee",
    "callables.class_with_new",
    "callables.method_wrapper",
    "callables.function_as_argument_default inlined",
    "callables.type_called inlined",
    "callables.own_code inlined",
    "libraries.torch_is_tensor",
    "libraries.torch_numel",
    "libraries.torch_tensor_size",
    "libraries.torch_tensor_is_contiguous",
    "libraries.f_gelu",
    "libraries.f_linear",
    "libraries.f_dropout",
    "libraries.torch_nn_linear_forward",
    "libraries.torch_nn_relu_forward",
    "libraries.torch_nn_module___call__",
    "libraries.torch_linalg_norm",
    "libraries.torch_nn_init_ones_",
    "libraries.math_sqrt",
    "libraries.math_floor",
    "libraries.np_sum",
    "libraries.functools_reduce",
    "libraries.operator_add",
    "libraries.itertools_chain",
    "libraries.collections_ordereddict",
    "libraries.os_path_basename",
    "libraries.shadow_len",
    "libraries.shadow_abs",
    "libraries.shadow_sum",
    "libraries.shadow_max",
    "libraries.shadow_range",
    "libraries.shadow_isinstance",
    "libraries.shadow_int",
    "libraries.shadow_sorted",
    "libraries.shadow_hasattr",
    "libraries.shadow_type",
    "libraries.shadow_zip",
    "libraries.shadow_getattr",
    "libraries.shadow_print",
    "libraries.shadow_deleted inlined",
    "libraries.builtin_shadowed_in_callee",
    "libraries.builtin_patched",
    "libraries.builtin_patched_round",
    "libraries.builtin_patched_divmod",
    "libraries.builtin_added",
    "libraries.builtin_through_module",
    "libraries.name_error_then_global",
    "libraries.imported_inside",
    "libraries.imported_from_replaced",
    "libraries.import_fails_then_works",
    "libraries.import_works_then_fails",
    "libraries.import_from_fails_then_works",
    "libraries.module_attribute_absent",
    "libraries.module_has_attribute",
    "libraries.global_of_other_module_deleted",
    "libraries.global_of_other_module_shadows",
    "libraries.global_function_of_other_module",
    "libraries.callee_code_of_other_module",
    "libraries.torch_attribute_absent",
    "libraries.torch_functional_absent",
    "libraries.custom_op_module inlined",
    "libraries.alias_from_import inlined",
    "libraries.alias_unpatched inlined",
    "libraries.functional_in_linear",
    "libraries.table_of_functions inlined",
    "libraries.init_of_torch_module_patched",
    "libraries.copy_patched",
    "libraries.copy_method",
    "libraries.deepcopy_method",
    "modules.class_attribute_absent",
    "modules.class_attribute_absent_compiled",
    "modules.forward_hook_global",
    "modules.forward_hook_global_compiled",
    "modules.forward_pre_hook_global",
    "modules.forward_pre_hook_global_compiled",
    "modules.forward_code",
    "modules.forward_code_compiled inlined",
    "modules.call_of_class",
    "modules.call_of_class_compiled",
    "modules.getattr_of_class",
    "modules.getattr_of_class_compiled",
    "modules.function_attribute inlined",
    "modes.anomaly_read",
    "modes.recursion_limit",
    "modes.context_object inlined",
    "modes.forward_ad_level",
    "process.getenv",
    "process.context_copy",
))  # fmt: skip
STALE_DIRECTLY = {name for name in KNOWN_STALE if not name.endswith(" inlined")}
STALE = {name.removesuffix(" inlined") for name in KNOWN_STALE}


def compile_eagerly(program):
    return tc.compile(program, backend="eager")


def cases(stale, names=FACTS):
    mark = pytest.mark.xfail(strict=True, reason="known to be stale")
    return [pytest.param(name, marks=[mark] * (name in stale), id=name) for name in names]


def assert_ok(name, compile=compile_eagerly, variants=fact_runner.VARIANTS):
    verdict = fact_runner.judge(FACTS[name], compile, tc.reset, variants)
    if verdict.status != "ok":
        pytest.fail(f"{verdict}\n{FACTS[name].program()}", pytrace=False)


@pytest.mark.parametrize("name", cases(STALE_DIRECTLY))
def test_change_is_noticed(name):
    assert_ok(name, variants=[DIRECT])


@pytest.mark.parametrize("name", cases(STALE - STALE_DIRECTLY, [
    name for number, name in enumerate(FACTS)
    if name not in STALE_DIRECTLY and (number % 8 == 0 or name in STALE)
]))  # fmt: skip
def test_change_is_noticed_by_inlined_code(name):
    assert_ok(name, variants=[INLINED])


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(STALE))
def test_change_is_noticed_in_all_variants(name):
    assert_ok(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(STALE, list(FACTS)[::16]))
def test_change_is_noticed_by_kernels(name):
    assert_ok(name, tc.compile, [DIRECT, fact_runner.Variant(60)])


def test_known_ones_exist():
    assert set(FACTS) >= STALE


def test_every_family_has_its_facts():
    families = {fact.family for fact in FACTS.values()}
    assert len(families) == 10
    assert all(sum(f.family == name for f in FACTS.values()) >= 50 for name in families)


def test_a_fact_that_tests_nothing_is_called_so():
    fact = fact_runner.Fact("nothing", "none", "def f(x): return x\nargs = t(),", "K = 5")
    assert fact_runner.judge(fact, compile_eagerly, tc.reset).status == "vacuous"


def test_a_compiler_that_never_looks_again_is_stale():
    def frozen(program):
        kept = []
        return lambda *args: kept[0] if kept else kept.append(program(*args)) or kept[0]

    verdicts = [
        fact_runner.judge(fact, frozen, lambda: None, [DIRECT]).status
        for fact in list(FACTS.values())[::10]
    ]
    assert verdicts.count("ok") < 3
