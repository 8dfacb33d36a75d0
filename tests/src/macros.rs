//! One `#[test]` per case, and one for the matrix.

/// Expands to one `#[test]` per case, in a module per theme, and to the test `matrix`, which runs all
/// combinations of the [`matrix`](crate::matrix) and shows the table.
///
/// Invoke it once per module, in the backend's own `tests/conformance.rs`:
///
/// ```
/// # use weir_tests::reference::ReferenceBackendFactory;
/// weir_tests::conformance_tests!(ReferenceBackendFactory::default());
/// # fn main() {}
/// ```
///
/// To run a second configuration, put a second invocation into a module of its own.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        fn conformance_factory() -> Box<dyn $crate::state_api::BackendFactory> {
            Box::new($factory)
        }
        $crate::__with_all_cases! { tests }

        #[test]
        fn matrix() {
            $crate::matrix::check(&*conformance_factory());
        }
    };
}

/// Hands the names of all cases to [`__for_cases`]; `self_check` holds them against the tables.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_all_cases {
    ($what:ident) => {
        $crate::__for_cases! { $what
            value:
                absent_reads_as_none
                set_replaces_and_clear_removes
                update_reads_changes_and_writes
                try_update_may_remove
                keys_and_states_are_isolated
                many_keys_keep_their_values
                values_of_all_lengths_survive
                get_many_answers_in_the_order_asked
                access_without_a_key_is_an_error
            ;
            list:
                order_and_duplicates_are_kept
                set_replaces_and_set_of_nothing_clears
                adding_nothing_creates_nothing
                any_bytes_are_elements
                absent_options_are_elements
                units_are_counted
                long_lists_grow_element_by_element
                lists_of_keys_are_isolated
                appending_goes_on_after_a_restore
            ;
            map:
                entries_are_set_read_and_removed
                a_map_disappears_with_its_last_entry
                clear_removes_all_entries_of_one_map
                absent_options_and_units_are_entries
                empty_and_odd_map_keys_are_keys
                entries_can_be_overwritten_with_any_length
                emptiness_follows_every_change
            ;
            iteration:
                order_is_that_of_the_map_keys
                ranges_keep_their_ends_in_both_orders
                crossed_and_empty_ranges_yield_nothing
                pages_of_all_counts_are_complete
                large_entries_end_pages_early
                removing_each_entry_once_seen_yields_all
                later_changes_are_not_seen
                an_iteration_outlives_clear_and_store
                iterations_overlap
            ;
            sorted_map:
                ends_follow_every_change
                prefixes_select_strings_and_tuples
                ranges_and_prefixes_are_removed
                a_sorted_map_disappears_with_its_last_entry
                sorted_maps_survive_a_rescale
                a_map_is_no_sorted_map
                expired_ends_are_passed_over
                namespaces_keep_sorted_maps_apart
            ;
            folding:
                reducing_stores_the_first_and_combines_the_rest
                reducing_keeps_the_order_of_arguments
                a_neutral_result_is_still_a_value
                aggregating_folds_into_an_accumulator
                accumulators_of_two_namespaces_share_nothing
                folds_go_on_after_a_restore
            ;
            namespaces:
                namespaces_are_isolated
                long_and_composed_namespaces_work
                lists_merge_in_the_order_of_the_sources
                values_merge_through_a_function
                reduced_values_and_accumulators_merge
                a_target_among_its_sources_counts_once
                a_source_named_twice_counts_once
                merging_nothing_stays_nothing
                merging_leaves_no_residue
                other_keys_do_not_merge
            ;
            absent:
                an_option_of_none_is_a_value
                zero_bytes_and_unit_are_values
                the_byte_level_tells_them_apart
            ;
            enumeration:
                each_key_is_listed_once
                each_namespace_lists_its_own_keys
                maps_list_their_key_once
                restored_states_are_listed_before_registration
                cleared_keys_are_not_listed
                listing_sees_the_state_as_of_the_call
                each_key_may_be_changed_while_visited
                an_error_ends_the_visit
                keys_come_by_key_group
                unknown_names_have_no_keys_and_timers_none
            ;
            registration:
                the_same_registration_gives_the_same_state
                another_kind_or_codec_is_refused
                a_refusal_changes_nothing
                restored_states_refuse_other_registrations
                unregistered_states_are_carried_along
                states_without_data_are_in_the_snapshot
                a_late_state_starts_empty
            ;
            keys:
                clearing_one_of_similar_keys_spares_the_others
                key_and_namespace_do_not_run_together
                namespace_and_map_key_do_not_run_together
                empty_keys_are_keys
                keys_of_many_types_are_kept_apart
                foreign_keys_are_refused_when_set
                foreign_keys_are_refused_at_the_byte_level
                a_refused_key_leaves_no_key_set
                long_keys_are_accepted_up_to_the_limit
                long_namespaces_and_map_keys_are_accepted_up_to_the_limit
                values_over_the_limit_are_refused_at_the_call
                the_engine_may_assign_key_groups
                keys_with_engine_groups_can_be_visited
                small_and_large_numbers_of_key_groups_work
            ;
            failures:
                a_failing_update_leaves_the_value
                a_failing_fold_leaves_the_accumulator
                a_failing_merge_leaves_all_namespaces
                a_panicking_function_leaves_the_state
                byte_level_updates_keep_put_and_delete
            ;
            timers:
                registering_twice_fires_once
                deleting_an_unknown_timer_does_nothing
                timers_are_due_at_their_time
                order_is_time_then_key_then_namespace
                order_holds_across_key_groups_at_the_byte_level
                extreme_times_are_times
                callbacks_may_register_and_delete
                polling_sets_the_key
                clearing_state_keeps_timers
                queues_are_independent
                the_next_timer_is_known
                timers_survive_a_restore_once
                fired_timers_stay_fired_after_a_restore
                timers_move_with_their_key_groups
                many_timers_come_in_order
                a_timer_that_does_not_decode_is_an_error_and_stays
            ;
            bytes:
                get_into_copies_whole_values_only
                multi_get_answers_each_address
                deferred_reads_see_the_state_as_of_their_call
                put_entries_sets_one_after_the_other
                append_grows_values_and_entries
                delete_range_removes_what_lies_inside
                unknown_states_are_invalid_usage
                calls_of_the_wrong_shape_are_invalid_usage
                states_are_listed_as_registered
                physical_entries_cover_the_live_ones
                reads_never_pend
            ;
            isolation:
                later_changes_are_not_in_the_snapshot
                in_place_updates_are_not_in_the_snapshot
                states_registered_later_are_not_in_it
                a_snapshot_is_written_while_the_task_goes_on
                overlapping_snapshots_keep_their_own_moments
                tasks_may_run_in_any_order
                a_snapshot_outlives_its_instance
                an_abandoned_snapshot_disturbs_nothing
                snapshots_leave_the_state_as_it_is
                all_states_are_of_one_moment
            ;
            restore:
                a_snapshot_restores_twice
                restored_state_is_live
                snapshots_of_restored_state_restore
                a_checkpoint_is_unharmed_by_the_job_that_uses_it
                an_empty_instance_restores
                rescaling_keeps_everything
                uneven_and_extreme_rescaling_works
                key_groups_that_come_back_are_fresh
                empty_key_groups_are_covered
                overlapping_handles_are_refused
                handles_survive_serialization
                handles_describe_themselves
                the_watermark_is_restored
                savepoints_restore
                files_restore_like_memory
                misfits_are_refused_up_front
                uncovered_key_groups_are_refused
                an_idle_restore_uploads_little
            ;
            damage:
                flipped_bytes_are_found_and_named
                truncated_objects_are_found_and_named
                missing_objects_are_found_and_named
                a_failed_upload_fails_only_its_snapshot
                a_lost_acknowledgement_is_survived
                a_failed_read_fails_the_restore
                notifications_are_hints
                confirmed_checkpoints_stay_whole
                aborted_checkpoints_are_not_built_on
            ;
            sharing:
                unchanged_state_is_shared_with_a_complete_checkpoint
                objects_lie_where_their_kind_belongs
                nothing_is_built_on_before_its_completion_is_known
                nothing_is_built_on_that_is_known_to_be_gone
                a_request_overrules_news_that_was_lost
                an_abort_harms_no_complete_checkpoint
                a_claimed_restore_is_built_on
                without_a_claim_nothing_is_built_on
                a_savepoint_shares_nothing
                no_loss_of_news_makes_a_kept_checkpoint_lack_objects
            ;
            ttl:
                values_of_every_kind_expire_at_their_deadline
                reads_refresh_where_asked
                a_read_refreshes_only_what_it_read
                expired_values_are_shown_where_asked
                nothing_is_built_on_what_is_shown
                long_lifetimes_do_not_wrap
                values_may_have_lifetimes_of_their_own
                own_lifetimes_need_a_ttl
                time_never_runs_backwards
                empty_values_and_units_expire_like_others
                restored_values_are_as_old_as_they_were
                a_snapshot_holds_what_had_not_expired_when_it_began
                impossible_ttls_are_refused
            ;
            ttl_expired:
                changes_of_expired_things_are_changes_of_absent_ones
                folds_begin_anew
                emptiness_counts_what_is_live
                iterations_skip_expired_entries
                listings_skip_expired_keys
                batched_reads_expire
                merged_values_expire_with_the_last_of_them
                expired_sources_do_not_merge
            ;
            ttl_event:
                nothing_expires_before_the_first_watermark
                what_is_older_than_all_watermarks_counts_from_the_first
                own_lifetimes_count_from_the_first_watermark
                a_restored_watermark_is_the_present
                no_watermark_is_not_the_smallest_one
            ;
            ttl_change:
                switching_on_counts_from_the_restore
                switching_off_keeps_what_lives
                a_new_lifetime_applies_to_old_stamps
                what_had_expired_stays_expired
                another_domain_keeps_ages
                changes_survive_snapshots
                unregistered_states_keep_their_ttl
                subtasks_may_have_changed_it_at_different_times
                a_refused_registration_changes_nothing
            ;
            ttl_clean_up:
                expired_values_of_every_kind_go
                steps_keep_their_budget_and_reach_everything
                what_lives_stays
                lists_and_maps_lose_what_has_expired
                accesses_drive_clean_up
                reads_remove_what_they_find_expired
                clean_up_and_snapshots_do_not_disturb_each_other
                states_without_a_ttl_are_left_alone
            ;
            model:
                random_programs_match_the_model
            ;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __for_cases {
    (tests $($group:ident: $($case:ident)+;)+) => {$(
        mod $group {$(
            #[test]
            fn $case() {
                let factory = super::conformance_factory();
                $crate::conformance::check(&*factory, stringify!($group), stringify!($case));
            }
        )+}
    )+};
    (names $($group:ident: $($case:ident)+;)+) => {
        [$($((stringify!($group), stringify!($case))),+),+]
    };
}
