//! Responses of the client protocol: every decoder on any bytes; what can be read is written back and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::rpc;

macro_rules! round_trip {
    ($data:expr, $($response:ident),* $(,)?) => {$(
        if let Ok(response) = rpc::$response::decode($data) {
            let mut written = Vec::new();
            response.encode(&mut written);
            assert_eq!(rpc::$response::decode(&written), Ok(response), stringify!($response));
        }
    )*};
}

fuzz_target!(|data: &[u8]| {
    let _ = rpc::status(data);
    round_trip!(
        data,
        StatusResponse,
        TableIdResponse,
        GetTableConfigResponse,
        RenewLeaseResponse,
        ServerControlAllResponse,
        ServerControlResponse,
        ReadResponse,
        WriteResponse,
        RetryResponse,
    );
    if let Ok(response) = rpc::MultiWriteResponse::decode(data) {
        assert_eq!(response.parts().len(), response.parts().count());
    }
});
