/// Makes a type that implements [`Plugin`](crate::Plugin) the plugin that the component exports. To be used once, in the
/// library's root.
///
/// For other targets than Wasm it only checks the type, so that the package can be tested natively.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use ::std::cell::RefCell;
            use $crate::bindings::exports::tidegate::plugin::processor;

            ::std::thread_local! {
                static INSTANCE: RefCell<Option<$crate::Instance<$plugin>>> =
                    const { RefCell::new(None) };
            }

            struct Component;

            impl processor::Guest for Component {
                fn describe() -> processor::Description {
                    $crate::describe::<$plugin>(&$crate::Package {
                        name: env!("CARGO_PKG_NAME"),
                        version: env!("CARGO_PKG_VERSION"),
                        description: env!("CARGO_PKG_DESCRIPTION"),
                    })
                }

                fn init(
                    config: ::std::string::String,
                ) -> ::std::result::Result<processor::Setup, processor::PluginError> {
                    let (instance, setup) = $crate::Instance::start(&config)?;
                    INSTANCE.set(Some(instance));
                    Ok(setup)
                }

                fn process(
                    batch: processor::Batch,
                ) -> ::std::result::Result<processor::Verdicts, processor::PluginError> {
                    INSTANCE.with_borrow_mut(|instance| match instance {
                        Some(instance) => instance.process(&batch),
                        None => Err(processor::PluginError::Fatal("`process` was called before `init`".into())),
                    })
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: fn() = || {
            fn is_plugin<P: $crate::Plugin>() {}
            is_plugin::<$plugin>();
        };
    };
}
